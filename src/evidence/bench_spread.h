#pragma once
// What is kept of repeated measurements: the median and how far they spread.
// Values.

#include <vector>

namespace signet::evidence {

struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};

/// Of an even number of values the median is the mean of the middle two; of
/// none all is zero.
Spread SpreadOf(std::vector<double> values);

}  // namespace signet::evidence
