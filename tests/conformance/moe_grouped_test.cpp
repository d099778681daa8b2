// Grouped expert products against the CPU's on the values that the GPU
// multiplies. ProductTest says how close.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/expert_layout.h"
#include "backend/kernel_bench.h"
#include "tests/conformance/grouped_testing.h"
#include "tests/conformance/product_testing.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using backend::testing::KernelBench;
using tensor::DType;

struct Block {
  int64_t num_experts = 0;
  int64_t hidden = 0;
  int64_t width = 0;
  DType x = DType::kBF16;
  DType gate = DType::kBF16;
  DType up = DType::kBF16;
  DType down = DType::kBF16;
};

/// Experts on both sides. Many experts share few matrices.
class Experts {
 public:
  Experts(Numbers& numbers, const Block& block, int64_t distinct)
      : block_(block), distinct_(distinct) {
    const int64_t count = block.hidden * block.width;
    for (int64_t e = 0; e < distinct; ++e) {
      Add(numbers, block.gate, count, gate_);
      Add(numbers, block.up, count, up_);
      Add(numbers, block.down, count, down_);
    }
  }

  /// Tables of the experts that `map` keeps and `ids` select; the pointers of
  /// all others are null, so that touching them is seen.
  struct Tables {
    std::vector<ExpertPointers> host;
    std::vector<ExpertPointers> device;
  };
  Tables TablesFor(const std::vector<int32_t>& map,
                   const std::vector<int32_t>& ids, int64_t num_local) const {
    Tables tables;
    tables.host.resize(static_cast<size_t>(num_local));
    tables.device.resize(static_cast<size_t>(num_local));
    for (int32_t id : ids) {
      if (id < 0 || map[static_cast<size_t>(id)] < 0) continue;
      const auto local = static_cast<size_t>(map[static_cast<size_t>(id)]);
      const auto e = static_cast<size_t>(id % distinct_);
      tables.host[local] = {gate_[e].met.data(), up_[e].met.data(),
                            down_[e].met.data()};
      tables.device[local] = {gate_[e].stored->data(), up_[e].stored->data(),
                              down_[e].stored->data()};
    }
    return tables;
  }
  const Block& block() const { return block_; }

 private:
  struct Matrix {
    std::unique_ptr<Stored> stored;
    std::vector<float> met;  // the values that inputs meet
  };
  void Add(Numbers& numbers, DType dtype, int64_t count,
           std::vector<Matrix>& to) {
    Matrix matrix = {std::make_unique<Stored>(numbers, dtype, count), {}};
    matrix.met = block_.x == DType::kBF16 ? matrix.stored->Rounded()
                                          : matrix.stored->values();
    to.push_back(std::move(matrix));
  }

  Block block_;
  int64_t distinct_;
  std::vector<Matrix> gate_;
  std::vector<Matrix> up_;
  std::vector<Matrix> down_;
};

/// y of gate/up and of down for all rows of a grouped order.
struct Outputs {
  std::vector<float> gate_up;
  std::vector<float> down;
};

class GroupedTest : public ProductTest {
 protected:
  /// One routing of one rank, and its inputs.
  struct Call {
    Routing routing;
    int64_t capacity = 0;
    int64_t tile_rows = 0;
    std::vector<int32_t> map;
    std::vector<float> x;    // [live, hidden]
    std::vector<float> act;  // [live * top_k, width]
  };

  static Call MakeCall(Numbers& numbers, const Block& block, Routing routing,
                       int64_t capacity, int64_t tile_rows,
                       std::vector<int32_t> map) {
    Call call = {std::move(routing), capacity, tile_rows,
                 std::move(map),     {},       {}};
    call.x = RoundedInputs(numbers, call.routing.live * block.hidden);
    call.act = RoundedInputs(
        numbers, call.routing.live * call.routing.top_k * block.width);
    return call;
  }

  static ExpertTableView View(const Block& block, int64_t num_local) {
    return {.num_experts = block.num_experts,
            .num_local = num_local,
            .hidden = block.hidden,
            .width = block.width,
            .gate_dtype = block.gate,
            .up_dtype = block.up,
            .down_dtype = block.down};
  }

  Outputs RunGpu(const Experts& experts, const Call& call,
                 const HostGrouped& grouped) {
    return RunPointers(
        experts.TablesFor(call.map, call.routing.ids, grouped.num_local).device,
        experts.block(), call, grouped, false);
  }
  /// `known`: told where all experts lie, by rule alone.
  Outputs RunTable(const std::vector<ExpertPointers>& experts,
                   const Block& block, const Call& call, bool known) {
    return RunPointers(experts, block, call,
                       HostGrouped(cpu(), call.routing, call.capacity,
                                   call.tile_rows, call.map),
                       known);
  }
  Outputs RunPointers(const std::vector<ExpertPointers>& experts,
                      const Block& block, const Call& call,
                      const HostGrouped& grouped, bool known) {
    DeviceArray<ExpertPointers> table(
        known ? std::vector<ExpertPointers>(experts.size()) : experts);
    DeviceArray<int32_t> map(call.map);
    DeviceArray<int32_t> sorted_slot(grouped.sorted_slot);
    DeviceArray<int32_t> tile_expert(grouped.tile_expert);
    DeviceRows rows(call.routing.live, call.capacity);
    Inputs x(block.x, call.x, call.capacity * block.hidden);
    Inputs act(block.x, call.act,
               call.capacity * call.routing.top_k * block.width);
    DeviceArray<float> gate_up(grouped.max_rows * 2 * block.width);
    DeviceArray<float> down(grouped.max_rows * block.hidden);
    ExpertTableView view = View(block, grouped.num_local);
    view.experts = table.data();
    view.global_to_local = map.data();
    if (known) view.layout = LayoutOf(experts);
    kernels().GroupedGateUp(KernelBench::Launch(),
                            {.rows = rows.view(),
                             .top_k = call.routing.top_k,
                             .tile_rows = call.tile_rows,
                             .max_rows = grouped.max_rows,
                             .table = view,
                             .sorted_slot = sorted_slot.data(),
                             .tile_expert = tile_expert.data(),
                             .x = x.view(),
                             .y = gate_up.data()});
    kernels().GroupedDown(KernelBench::Launch(),
                          {.rows = rows.view(),
                           .tile_rows = call.tile_rows,
                           .max_rows = grouped.max_rows,
                           .table = view,
                           .sorted_slot = sorted_slot.data(),
                           .tile_expert = tile_expert.data(),
                           .act = act.view(),
                           .y = down.data()});
    Finish();
    EXPECT_TRUE(gate_up.CanariesIntact() && down.CanariesIntact());
    return {gate_up.Get(), down.Get()};
  }

  Outputs RunCpu(const Experts& experts, const Call& call,
                 const HostGrouped& grouped) {
    Block block = experts.block();
    block.gate = block.up = block.down = DType::kF32;
    const std::vector<ExpertPointers> table =
        experts.TablesFor(call.map, call.routing.ids, grouped.num_local).host;
    const auto live = static_cast<int32_t>(call.routing.live);
    const Rows rows = {.live = &live, .capacity = call.capacity};
    ExpertTableView view = View(block, grouped.num_local);
    view.experts = table.data();
    view.global_to_local = call.map.data();
    Outputs out;
    out.gate_up.resize(static_cast<size_t>(grouped.max_rows * 2 * block.width));
    out.down.resize(static_cast<size_t>(grouped.max_rows * block.hidden));
    cpu().GroupedGateUp(KernelBench::Launch(),
                        {.rows = rows,
                         .top_k = call.routing.top_k,
                         .tile_rows = call.tile_rows,
                         .max_rows = grouped.max_rows,
                         .table = view,
                         .sorted_slot = grouped.sorted_slot.data(),
                         .tile_expert = grouped.tile_expert.data(),
                         .x = {.data = call.x.data()},
                         .y = out.gate_up.data()});
    cpu().GroupedDown(KernelBench::Launch(),
                      {.rows = rows,
                       .tile_rows = call.tile_rows,
                       .max_rows = grouped.max_rows,
                       .table = view,
                       .sorted_slot = grouped.sorted_slot.data(),
                       .tile_expert = grouped.tile_expert.data(),
                       .act = {.data = call.act.data()},
                       .y = out.down.data()});
    return out;
  }

  /// Real rows are close, padding is not written.
  static void Compare(const std::vector<float>& got,
                      const std::vector<float>& want,
                      const HostGrouped& grouped, int64_t stride,
                      double bound) {
    std::vector<float> got_rows;
    std::vector<float> want_rows;
    for (int64_t row = 0; row < grouped.max_rows; ++row) {
      const auto begin = static_cast<int64_t>(row * stride);
      const std::span<const float> got_row = std::span(got).subspan(
          static_cast<size_t>(begin), static_cast<size_t>(stride));
      if (grouped.sorted_slot[static_cast<size_t>(row)] < 0) {
        ASSERT_TRUE(AllUnwritten(got_row)) << "padding row " << row;
        continue;
      }
      got_rows.insert(got_rows.end(), got_row.begin(), got_row.end());
      want_rows.insert(want_rows.end(), want.begin() + begin,
                       want.begin() + begin + stride);
    }
    if (want_rows.empty()) return;
    EXPECT_LE(RelativeError(std::span<const float>(got_rows),
                            std::span<const float>(want_rows)),
              bound);
  }

  void Check(const Experts& experts, const Call& call) {
    const Block& block = experts.block();
    SCOPED_TRACE(call.routing.name + ", " + std::to_string(call.routing.live) +
                 " of " + std::to_string(call.capacity) + " rows, tile " +
                 std::to_string(call.tile_rows) + ", H " +
                 std::to_string(block.hidden) + ", I " +
                 std::to_string(block.width));
    const HostGrouped grouped(cpu(), call.routing, call.capacity,
                              call.tile_rows, call.map);
    const Outputs got = RunGpu(experts, call, grouped);
    const Outputs want = RunCpu(experts, call, grouped);
    const double bound = block.x == DType::kBF16 ? kRoundedBound : kFloatBound;
    Compare(got.gate_up, want.gate_up, grouped, 2 * block.width, bound);
    Compare(got.down, want.down, grouped, block.hidden, bound);
    const Outputs again = RunGpu(experts, call, grouped);
    EXPECT_TRUE(SameBits(got.gate_up, again.gate_up));
    EXPECT_TRUE(SameBits(got.down, again.down));
  }
};

TEST_F(GroupedTest, EveryRoutingAndTileMatchTheCpu) {
  Numbers numbers(11);
  const Block block = {.num_experts = 9, .hidden = 72, .width = 40};
  const Experts experts(numbers, block, block.num_experts);
  for (const Routing& routing : Routings(numbers, block.num_experts)) {
    for (int64_t tile_rows : {1, 4, 8, 16, 32, 64, 128, 160}) {
      Check(experts, MakeCall(numbers, block, routing, routing.live + 2,
                              tile_rows, OwnedRange(9, 2, 8)));
    }
  }
}

TEST_F(GroupedTest, OddSizesMatchTheCpu) {
  Numbers numbers(12);
  const std::vector<std::pair<int64_t, int64_t>> sizes = {
      {44, 22}, {32, 8}, {48, 33}, {33, 48}, {264, 130}, {300, 516}, {8, 1}};
  for (const auto& [hidden, width] : sizes) {
    const Block block = {.num_experts = 5, .hidden = hidden, .width = width};
    const Experts experts(numbers, block, block.num_experts);
    for (int64_t tile_rows : {8, 16, 32, 64, 128}) {
      for (int64_t live : {3, 70, 200}) {
        Check(experts,
              MakeCall(numbers, block, RandomRouting(numbers, live, 2, 5),
                       live + 1, tile_rows, OwnedRange(5, 0, 5)));
      }
    }
  }
}

TEST_F(GroupedTest, EveryDTypeMatchesTheCpu) {
  Numbers numbers(13);
  for (DType x : {DType::kF32, DType::kBF16}) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const Block block = {.num_experts = 4,
                           .hidden = 88,
                           .width = 44,
                           .x = x,
                           .gate = dtype,
                           .up = dtype,
                           .down = dtype};
      const Experts experts(numbers, block, block.num_experts);
      for (int64_t tile_rows : {8, 32, 128}) {
        Check(experts,
              MakeCall(numbers, block, RandomRouting(numbers, 50, 3, 4), 60,
                       tile_rows, OwnedRange(4, 1, 4)));
      }
    }
    const Block mixed = {.num_experts = 4,
                         .hidden = 64,
                         .width = 48,
                         .x = x,
                         .gate = DType::kBF16,
                         .up = DType::kF16,
                         .down = DType::kF32};
    const Experts experts(numbers, mixed, mixed.num_experts);
    Check(experts, MakeCall(numbers, mixed, RandomRouting(numbers, 50, 3, 4),
                            60, 16, OwnedRange(4, 0, 4)));
  }
}

// The last row's own result among other rows, of another number.
TEST_F(GroupedTest, NeighboursChangeNoBit) {
  Numbers numbers(14);
  for (DType x : {DType::kBF16, DType::kF32}) {
    const Block block = {.num_experts = 8, .hidden = 520, .width = 264, .x = x};
    const Experts experts(numbers, block, block.num_experts);
    const int64_t capacity = 200;
    const int64_t top_k = 3;
    for (int64_t tile_rows : {8, 16, 64, 128}) {
      SCOPED_TRACE("tile " + std::to_string(tile_rows));
      std::vector<std::vector<float>> rows_of_runs;
      Call first;
      for (int64_t live : {int64_t{200}, int64_t{1}, int64_t{57}}) {
        Call call =
            MakeCall(numbers, block, RandomRouting(numbers, live, top_k, 8),
                     capacity, tile_rows, OwnedRange(8, 0, 8));
        if (first.capacity == 0) {
          first = call;
        } else {
          // Its last row is the first call's.
          std::copy(first.routing.ids.end() - top_k, first.routing.ids.end(),
                    call.routing.ids.end() - top_k);
          std::copy(first.x.end() - block.hidden, first.x.end(),
                    call.x.end() - block.hidden);
          std::copy(first.act.end() - top_k * block.width, first.act.end(),
                    call.act.end() - top_k * block.width);
        }
        const HostGrouped grouped(cpu(), call.routing, capacity, tile_rows,
                                  call.map);
        const Outputs out = RunGpu(experts, call, grouped);
        std::vector<float> own;
        for (int64_t s = (live - 1) * top_k; s < live * top_k; ++s) {
          const int64_t row = grouped.inverse_perm[static_cast<size_t>(s)];
          const auto gate_up = out.gate_up.begin() + row * 2 * block.width;
          own.insert(own.end(), gate_up, gate_up + 2 * block.width);
          const auto down = out.down.begin() + row * block.hidden;
          own.insert(own.end(), down, down + block.hidden);
        }
        rows_of_runs.push_back(own);
      }
      EXPECT_TRUE(SameBits(rows_of_runs[0], rows_of_runs[1]));
      EXPECT_TRUE(SameBits(rows_of_runs[0], rows_of_runs[2]));
    }
  }
}

TEST_F(GroupedTest, FlagshipDecodeMatchesTheCpu) {
  Numbers numbers(15);
  const Block block = {.num_experts = 256, .hidden = 2048, .width = 512};
  const Experts experts(numbers, block, 5);
  for (int64_t live : {9, 64}) {
    for (int64_t tile_rows : {8, 16}) {
      Check(experts,
            MakeCall(numbers, block, RandomRouting(numbers, live, 8, 256), 64,
                     tile_rows, OwnedRange(256, 0, 256)));
    }
  }
}

// Most tokens at one expert: runs of many tiles, cut into parts of every
// number of tiles.
TEST_F(GroupedTest, LongRunsMatchTheCpu) {
  Numbers numbers(17);
  const Block block = {.num_experts = 4, .hidden = 200, .width = 136};
  const Experts experts(numbers, block, block.num_experts);
  for (int64_t tile_rows : {32, 64, 128}) {
    for (int64_t live : {250, 263, 330, 460, 700, 1300}) {
      Routing routing = RandomRouting(numbers, live, 2, 4);
      for (int64_t t = 0; t < live; ++t) {
        if (t % 7 == 0) continue;
        routing.ids[static_cast<size_t>(2 * t)] = 2;
        routing.ids[static_cast<size_t>(2 * t + 1)] = t % 2 == 0 ? 1 : 3;
      }
      Check(experts, MakeCall(numbers, block, routing, live + 5, tile_rows,
                              OwnedRange(4, 0, 4)));
    }
  }
}

// The copy engine brings the matrices of experts at one distance, threads all
// others. Where it does, the device's table holds nothing, so that it is seen
// if somebody asks there.
TEST_F(GroupedTest, WhatBringsTheWeightsChangesNoBit) {
  Numbers numbers(20);
  for (const auto& [hidden, width] :
       std::vector<std::pair<int64_t, int64_t>>{{200, 136}, {64, 72}, {8, 8}}) {
    const Block block = {.num_experts = 6, .hidden = hidden, .width = width};
    const int64_t count = hidden * width;
    Stored all(numbers, DType::kBF16, 3 * block.num_experts * count);
    const auto* data = static_cast<const uint16_t*>(all.data());
    std::vector<ExpertPointers> table;
    for (int64_t e = 0; e < block.num_experts; ++e) {
      const uint16_t* own = data + 3 * e * count;
      table.push_back({own, own + count, own + 2 * count});
    }
    for (int64_t tile_rows : {32, 64, 128}) {
      for (int64_t live : {40, 700}) {
        const Call call = MakeCall(
            numbers, block, RandomRouting(numbers, live, 2, block.num_experts),
            live, tile_rows, OwnedRange(6, 0, 6));
        const Outputs copied = RunTable(table, block, call, false);
        const Outputs boxes = RunTable(table, block, call, true);
        EXPECT_TRUE(SameBits(copied.gate_up, boxes.gate_up));
        EXPECT_TRUE(SameBits(copied.down, boxes.down));
      }
    }
  }
}

// More tiles than a block lists.
TEST_F(GroupedTest, VeryManyTilesMatchTheCpu) {
  Numbers numbers(18);
  const Block block = {.num_experts = 3, .hidden = 16, .width = 8};
  const Experts experts(numbers, block, block.num_experts);
  Check(experts, MakeCall(numbers, block, RandomRouting(numbers, 40000, 2, 3),
                          40000, 32, OwnedRange(3, 0, 3)));
}

TEST_F(GroupedTest, FlagshipPrefillMatchesTheCpu) {
  Numbers numbers(16);
  const Block block = {.num_experts = 256, .hidden = 2048, .width = 512};
  const Experts experts(numbers, block, 5);
  for (int64_t tile_rows : {64, 128}) {
    for (int64_t live : {700, 2048}) {
      Check(experts,
            MakeCall(numbers, block, RandomRouting(numbers, live, 8, 256), live,
                     tile_rows, OwnedRange(256, 0, 256)));
    }
  }
}

}  // namespace
}  // namespace signet::backend::gpu
