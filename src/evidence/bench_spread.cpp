#include "evidence/bench_spread.h"

#include <algorithm>
#include <cstddef>

namespace signet::evidence {

Spread SpreadOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t upper = values.size() / 2;
  const size_t lower = (values.size() - 1) / 2;
  return {.median = (values[lower] + values[upper]) / 2,
          .min = values.front(),
          .max = values.back()};
}

}  // namespace signet::evidence
