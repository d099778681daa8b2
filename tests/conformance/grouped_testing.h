#pragma once
// What tests of the grouped order share: random routings, and the CPU's grouped
// order of one. Only tests include this.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backend/kernel_bench.h"
#include "backend/kernels.h"
#include "backend/routing_testing.h"
#include "tests/conformance/product_testing.h"

namespace signet::backend::gpu::testing {

using backend::testing::DegenerateRoutings;
using backend::testing::GroupedCapacity;
using backend::testing::OwnedRange;
using backend::testing::Routing;

/// Rows of distinct random experts.
inline Routing RandomRouting(Numbers& numbers, int64_t live, int64_t top_k,
                             int64_t num_experts) {
  Routing routing = {"random", live, top_k, {}};
  for (int64_t t = 0; t < live; ++t) {
    const size_t row = routing.ids.size();
    while (routing.ids.size() < row + static_cast<size_t>(top_k)) {
      const auto id = static_cast<int32_t>(numbers.Below(num_experts));
      if (std::find(routing.ids.begin() + static_cast<int64_t>(row),
                    routing.ids.end(), id) == routing.ids.end()) {
        routing.ids.push_back(id);
      }
    }
  }
  return routing;
}

/// Random and degenerate routings over `num_experts` >= 4 experts.
inline std::vector<Routing> Routings(Numbers& numbers, int64_t num_experts) {
  std::vector<Routing> all;
  for (int64_t live : {1, 2, 3, 5, 33, 129}) {
    all.push_back(RandomRouting(numbers, live, 3, num_experts));
  }
  for (Routing& routing : DegenerateRoutings(num_experts)) {
    all.push_back(std::move(routing));
  }
  return all;
}

/// The grouped order of a routing, made by the CPU.
struct HostGrouped {
  HostGrouped(Kernels& cpu, const Routing& routing, int64_t capacity,
              int64_t tile_rows, const std::vector<int32_t>& global_to_local)
      : tile_rows(tile_rows),
        num_local(std::count_if(global_to_local.begin(), global_to_local.end(),
                                [](int32_t local) { return local >= 0; })),
        max_rows(
            GroupedCapacity(capacity * routing.top_k, num_local, tile_rows)),
        counts(static_cast<size_t>(num_local)),
        offsets(static_cast<size_t>(num_local + 1)),
        sorted_slot(static_cast<size_t>(max_rows)),
        tile_expert(static_cast<size_t>(max_rows / tile_rows)),
        inverse_perm(static_cast<size_t>(capacity * routing.top_k)) {
    const auto live = static_cast<int32_t>(routing.live);
    cpu.Scatter(backend::testing::KernelBench::Launch(),
                {.rows = {.live = &live, .capacity = capacity},
                 .top_k = routing.top_k,
                 .num_experts = static_cast<int64_t>(global_to_local.size()),
                 .num_local = num_local,
                 .global_to_local = global_to_local.data(),
                 .tile_rows = tile_rows,
                 .max_rows = max_rows,
                 .ids = routing.ids.data(),
                 .counts = counts.data(),
                 .offsets = offsets.data(),
                 .sorted_slot = sorted_slot.data(),
                 .tile_expert = tile_expert.data(),
                 .inverse_perm = inverse_perm.data()});
  }

  int64_t tile_rows;
  int64_t num_local;
  int64_t max_rows;
  std::vector<int32_t> counts;
  std::vector<int32_t> offsets;
  std::vector<int32_t> sorted_slot;
  std::vector<int32_t> tile_expert;
  std::vector<int32_t> inverse_perm;
};

}  // namespace signet::backend::gpu::testing
