#pragma once
// Routed blocks for tests: experts with known weights, random routings, and the
// grouped buffers of a scatter. Only tests include this.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu/kernel_testing.h"
#include "backend/cpu/ops.h"
#include "backend/routing_testing.h"

namespace signet::backend::cpu::testing {

using backend::testing::DegenerateRoutings;
using backend::testing::GroupedCapacity;
using backend::testing::OwnedRange;
using backend::testing::Routing;
using backend::testing::RoutingOf;

inline std::vector<int32_t> DistinctIds(Random& random, int64_t num_experts,
                                        int64_t top_k) {
  std::vector<int32_t> all(static_cast<size_t>(num_experts));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), random);
  all.resize(static_cast<size_t>(top_k));
  return all;
}

/// Random and degenerate routings over `num_experts` >= 4 experts.
inline std::vector<Routing> Routings(Random& random, int64_t num_experts) {
  std::vector<Routing> all;
  for (int64_t live : {1, 2, 3, 5, 33, 129}) {
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < live; ++t) {
      const std::vector<int32_t> row = DistinctIds(random, num_experts, 3);
      ids.insert(ids.end(), row.begin(), row.end());
    }
    all.push_back({"random", live, 3, ids});
  }
  for (Routing& routing : DegenerateRoutings(num_experts)) {
    all.push_back(std::move(routing));
  }
  all.push_back(RoutingOf("repeated within a row", 6, 3,
                          [&](int64_t s) { return s / 4 % num_experts; }));
  return all;
}

/// The weights of all experts, and the table of one rank.
class Experts {
 public:
  Experts(Random& random, int64_t num_experts, int64_t hidden, int64_t width,
          tensor::DType gate, tensor::DType up, tensor::DType down)
      : num_experts(num_experts),
        hidden(hidden),
        width(width),
        gate_dtype_(gate),
        up_dtype_(up),
        down_dtype_(down) {
    for (int64_t e = 0; e < num_experts; ++e) {
      this->gate.emplace_back(random, gate, width, hidden);
      this->up.emplace_back(random, up, width, hidden);
      this->down.emplace_back(random, down, hidden, width);
    }
  }

  /// The experts that `global_to_local` keeps and `ids` select; the pointers
  /// of all others are null, so that touching them is seen.
  struct Table {
    std::vector<int32_t> global_to_local;
    std::vector<ExpertPointers> experts;
    ExpertTableView view;
  };
  Table TableFor(std::vector<int32_t> global_to_local,
                 const std::vector<int32_t>& ids) const {
    Table table;
    table.global_to_local = std::move(global_to_local);
    int32_t num_local = 0;
    for (int32_t local : table.global_to_local) num_local += local >= 0;
    table.experts.resize(static_cast<size_t>(num_local));
    for (int32_t id : ids) {
      if (id < 0) continue;
      const size_t e = static_cast<size_t>(id);
      const int32_t local = table.global_to_local[e];
      if (local < 0) continue;
      table.experts[static_cast<size_t>(local)] = {gate[e].data(), up[e].data(),
                                                   down[e].data()};
    }
    table.view = {.experts = table.experts.data(),
                  .global_to_local = table.global_to_local.data(),
                  .num_experts = num_experts,
                  .num_local = num_local,
                  .hidden = hidden,
                  .width = width,
                  .gate_dtype = gate_dtype_,
                  .up_dtype = up_dtype_,
                  .down_dtype = down_dtype_};
    return table;
  }

  int64_t num_experts;
  int64_t hidden;
  int64_t width;
  std::vector<StoredMatrix> gate;
  std::vector<StoredMatrix> up;
  std::vector<StoredMatrix> down;

 private:
  tensor::DType gate_dtype_;
  tensor::DType up_dtype_;
  tensor::DType down_dtype_;
};

/// The outputs of a scatter, of the capacity the contract proves.
struct Grouped {
  Grouped(int64_t num_slots, int64_t num_local, int64_t tile_rows)
      : Grouped(num_slots, num_local, tile_rows,
                GroupedCapacity(num_slots, num_local, tile_rows)) {}
  Grouped(int64_t num_slots, int64_t num_local, int64_t tile_rows,
          int64_t max_rows)
      : tile_rows(tile_rows),
        max_rows(max_rows),
        counts(num_local),
        offsets(num_local + 1),
        sorted_slot(max_rows),
        tile_expert(max_rows / tile_rows),
        inverse_perm(num_slots) {}

  void Fill(ThreadPool& pool, const Rows& rows, int64_t top_k,
            const std::vector<int32_t>& global_to_local, const int32_t* ids) {
    Scatter(pool, {.rows = rows,
                   .top_k = top_k,
                   .num_experts = static_cast<int64_t>(global_to_local.size()),
                   .num_local = counts.size(),
                   .global_to_local = global_to_local.data(),
                   .tile_rows = tile_rows,
                   .max_rows = max_rows,
                   .ids = ids,
                   .counts = counts.data(),
                   .offsets = offsets.data(),
                   .sorted_slot = sorted_slot.data(),
                   .tile_expert = tile_expert.data(),
                   .inverse_perm = inverse_perm.data()});
  }
  bool CanariesIntact() const {
    return counts.CanariesIntact() && offsets.CanariesIntact() &&
           sorted_slot.CanariesIntact() && tile_expert.CanariesIntact() &&
           inverse_perm.CanariesIntact();
  }

  int64_t tile_rows;
  int64_t max_rows;
  Guarded<int32_t> counts;
  Guarded<int32_t> offsets;
  Guarded<int32_t> sorted_slot;
  Guarded<int32_t> tile_expert;
  Guarded<int32_t> inverse_perm;
};

}  // namespace signet::backend::cpu::testing
