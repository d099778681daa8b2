#pragma once
// How many experts the rows of a call met, counted on what the device routed.
// One thread.

#include <cstdint>
#include <span>
#include <vector>

namespace signet::evidence {

/// Distinct ids of [0, num_experts) in `ids`; others count for nothing.
int64_t CountDistinct(std::span<const int32_t> ids, int64_t num_experts);

/// Means over calls of what each layer met.
class RouteCounter {
 public:
  explicit RouteCounter(int64_t num_experts) : num_experts_(num_experts) {}

  void BeginCall();
  /// The ids of the call's next layer, of its live rows.
  void Add(std::span<const int32_t> ids);

  int64_t calls() const { return calls_; }
  /// By layer with experts, of the last call.
  const std::vector<int64_t>& last() const { return last_; }
  /// Over layers and calls; 0 before the first.
  double Mean() const;

 private:
  int64_t num_experts_;
  int64_t calls_ = 0;
  int64_t routes_ = 0;
  int64_t distinct_ = 0;
  std::vector<int64_t> last_;
};

}  // namespace signet::evidence
