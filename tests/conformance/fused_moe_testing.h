#pragma once
// What tests of the routed block share: its shapes, and the experts of a rank.
// Only tests include this.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/conformance/expert_testing.h"

namespace signet::backend::gpu::testing {

struct MoeCase {
  int64_t capacity;
  int64_t live;
  int64_t top_k;
  ExpertShape shape;
  int64_t shared_width;
  int64_t in_use = 12;  // experts that routes name
  int64_t lanes = 8;
  int64_t first_lane = 0;  // of this rank
  int64_t num_lanes = 8;
  bool renormalise = true;
};

inline std::string NameOf(const MoeCase& c) {
  return std::to_string(c.live) + " of " + std::to_string(c.capacity) +
         " rows, " + std::to_string(c.top_k) + " of " +
         std::to_string(c.shape.num_experts) + " experts of " +
         std::to_string(c.shape.hidden) + " x " +
         std::to_string(c.shape.width) + ", shared " +
         std::to_string(c.shared_width) + ", lanes " +
         std::to_string(c.first_lane) + " + " + std::to_string(c.num_lanes);
}

/// The experts of the case's rank.
inline std::vector<int32_t> Here(const MoeCase& c) {
  const int64_t per_lane = c.shape.num_experts / c.lanes;
  return SomeHere(c.shape.num_experts, c.first_lane * per_lane,
                  c.num_lanes == c.lanes
                      ? c.shape.num_experts
                      : (c.first_lane + c.num_lanes) * per_lane);
}

}  // namespace signet::backend::gpu::testing
