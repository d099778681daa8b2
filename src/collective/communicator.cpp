#include "collective/communicator.h"

#include <algorithm>

namespace signet::collective {

ColumnBlock BlockOf(int64_t columns, int members, int member) {
  const int64_t block = (columns + members - 1) / members;
  const int64_t first = std::min(block * member, columns);
  return {.first = first, .count = std::min(block, columns - first)};
}

}  // namespace signet::collective
