#include "evidence/bench_routes.h"

namespace signet::evidence {

int64_t CountDistinct(std::span<const int32_t> ids, int64_t num_experts) {
  std::vector<bool> met(static_cast<size_t>(num_experts));
  int64_t distinct = 0;
  for (const int32_t id : ids) {
    if (id < 0 || id >= num_experts || met[static_cast<size_t>(id)]) continue;
    met[static_cast<size_t>(id)] = true;
    ++distinct;
  }
  return distinct;
}

void RouteCounter::BeginCall() {
  ++calls_;
  last_.clear();
}

void RouteCounter::Add(std::span<const int32_t> ids) {
  last_.push_back(CountDistinct(ids, num_experts_));
  distinct_ += last_.back();
  ++routes_;
}

double RouteCounter::Mean() const {
  if (routes_ == 0) return 0;
  return static_cast<double>(distinct_) / static_cast<double>(routes_);
}

}  // namespace signet::evidence
