#pragma once
// What tests of the grouped order share: routings of every degenerate kind, and
// the CPU's grouped order of one. Only tests include this.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backend/kernel_bench.h"
#include "backend/kernels.h"
#include "tests/conformance/product_testing.h"

namespace signet::backend::gpu::testing {

/// One int32 an expert: its local number on a rank, -1 if it is foreign.
inline std::vector<int32_t> OwnedRange(int64_t num_experts, int64_t begin,
                                       int64_t end) {
  std::vector<int32_t> map(static_cast<size_t>(num_experts), -1);
  for (int64_t e = begin; e < end; ++e) {
    map[static_cast<size_t>(e)] = static_cast<int32_t>(e - begin);
  }
  return map;
}

/// The capacity of the grouped order (contract P5).
inline int64_t GroupedCapacity(int64_t num_slots, int64_t num_local,
                               int64_t tile_rows) {
  const int64_t n = std::min(num_local, num_slots);
  return tile_rows * ((num_slots + n * (tile_rows - 1)) / tile_rows);
}

struct Routing {
  std::string name;
  int64_t live = 0;
  int64_t top_k = 0;
  std::vector<int32_t> ids;  // [live * top_k]
};

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
  const auto add = [&](std::string name, int64_t live, int64_t top_k,
                       auto id_of) {
    Routing routing = {std::move(name), live, top_k, {}};
    for (int64_t s = 0; s < live * top_k; ++s) {
      routing.ids.push_back(static_cast<int32_t>(id_of(s)));
    }
    all.push_back(std::move(routing));
  };
  add("no live rows", 0, 3, [](int64_t) { return 0; });
  add("all to one", 137, 1, [](int64_t) { return 2; });
  add("one expert empty", 40, 1,
      [&](int64_t s) { return s % (num_experts - 1) + 1; });
  add("one token each", num_experts, 1, [](int64_t s) { return s; });
  add("top-k is E", 5, num_experts,
      [&](int64_t s) { return (s / num_experts + s) % num_experts; });
  add("singletons and one heavy", 150, 1,
      [&](int64_t s) { return std::min(s, num_experts - 1); });
  add("fewer slots than experts", 2, 1, [](int64_t s) { return 3 * s; });
  add("absent rows among others", 12, 2,
      [&](int64_t s) { return s / 2 % 3 == 1 ? -1 : s % num_experts; });
  add("all absent", 4, 2, [](int64_t) { return -1; });
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
