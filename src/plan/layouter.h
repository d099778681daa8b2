#pragma once
// The one pure layouter of arenas (contract P4): requests with lifetimes to
// offsets such that no two live ones overlap. Deterministic.

#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace signet::plan {

struct LayoutRequest {
  Bytes size;
  uint64_t alignment;  // a power of two
  int64_t first_step;  // inclusive
  int64_t last_step;   // inclusive
};

struct Layout {
  std::vector<uint64_t> offsets;  // one a request
  Bytes total;
};

/// First fit by decreasing size (Pisarchyk and Lee, "Efficient Memory
/// Management for Deep Neural Net Inference", 2020). `total` sticks on
/// overflow, and then the offsets mean nothing.
Layout LayOut(const std::vector<LayoutRequest>& requests);

inline constexpr uint64_t kBufferAlignment = 64;

}  // namespace signet::plan
