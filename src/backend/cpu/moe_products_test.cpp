// Indexed and grouped expert products: each against the definition, so against
// each other bit for bit.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/cpu/moe_testing.h"
#include "backend/cpu/ops.h"

namespace signet::backend::cpu {
namespace {

using tensor::DType;
using namespace testing;  // NOLINT(google-build-using-namespace)

/// The products of one routed block on one rank, in slot order.
struct Products {
  std::vector<float> gate;
  std::vector<float> up;
  std::vector<float> down;  // slots that are not ours: poison
};

struct BlockCase {
  const Experts& experts;
  const Routing& routing;
  std::vector<int32_t> global_to_local;
  const std::vector<float>& x;    // [live, H]
  const std::vector<float>& act;  // [S, I]
  int threads = 2;
  int64_t tile_rows = 4;

  int64_t capacity() const { return routing.live + 2; }
  int64_t num_slots() const { return capacity() * routing.top_k; }
};

Products Indexed(const BlockCase& test) {
  ThreadPool pool(test.threads);
  const LiveRows rows(test.routing.live, test.capacity());
  const Experts::Table table =
      test.experts.TableFor(test.global_to_local, test.routing.ids);
  Guarded<float> gate(test.num_slots() * test.experts.width);
  Guarded<float> up(test.num_slots() * test.experts.width);
  Guarded<float> down(test.num_slots() * test.experts.hidden);
  IndexedGateUp(pool, {.rows = rows.view(),
                       .top_k = test.routing.top_k,
                       .table = table.view,
                       .ids = test.routing.ids.data(),
                       .x = test.x.data(),
                       .gate = gate.data(),
                       .up = up.data()});
  IndexedDown(pool, {.rows = rows.view(),
                     .top_k = test.routing.top_k,
                     .table = table.view,
                     .ids = test.routing.ids.data(),
                     .act = test.act.data(),
                     .out = down.data()});
  EXPECT_TRUE(gate.CanariesIntact() && up.CanariesIntact() &&
              down.CanariesIntact());
  return {gate.Values(), up.Values(), down.Values()};
}

Products GroupedForm(const BlockCase& test) {
  ThreadPool pool(test.threads);
  const int64_t hidden = test.experts.hidden;
  const int64_t width = test.experts.width;
  const LiveRows rows(test.routing.live, test.capacity());
  const Experts::Table table =
      test.experts.TableFor(test.global_to_local, test.routing.ids);
  Grouped grouped(test.num_slots(), table.view.num_local, test.tile_rows);
  grouped.Fill(pool, rows.view(), test.routing.top_k, test.global_to_local,
               test.routing.ids.data());
  Guarded<float> y(grouped.max_rows * 2 * width);
  Guarded<float> yd(grouped.max_rows * hidden);
  GroupedGateUp(pool, {.rows = rows.view(),
                       .top_k = test.routing.top_k,
                       .tile_rows = test.tile_rows,
                       .max_rows = grouped.max_rows,
                       .table = table.view,
                       .sorted_slot = grouped.sorted_slot.data(),
                       .tile_expert = grouped.tile_expert.data(),
                       .x = {test.x.data()},
                       .y = y.data()});
  GroupedDown(pool, {.rows = rows.view(),
                     .tile_rows = test.tile_rows,
                     .max_rows = grouped.max_rows,
                     .table = table.view,
                     .sorted_slot = grouped.sorted_slot.data(),
                     .tile_expert = grouped.tile_expert.data(),
                     .act = {test.act.data()},
                     .y = yd.data()});
  EXPECT_TRUE(y.CanariesIntact() && yd.CanariesIntact());
  Guarded<float> gate(test.num_slots() * width);
  Guarded<float> up(test.num_slots() * width);
  Guarded<float> down(test.num_slots() * hidden);
  for (int64_t row = 0; row < grouped.max_rows; ++row) {
    const int64_t slot = grouped.sorted_slot[row];
    if (slot < 0) {
      EXPECT_TRUE(y.IsPoison(row * 2 * width)) << "a padding row was written";
      EXPECT_TRUE(yd.IsPoison(row * hidden)) << "a padding row was written";
      continue;
    }
    const float* from = y.data() + row * 2 * width;
    std::copy_n(from, width, gate.data() + slot * width);
    std::copy_n(from + width, width, up.data() + slot * width);
    std::copy_n(yd.data() + row * hidden, hidden, down.data() + slot * hidden);
  }
  return {gate.Values(), up.Values(), down.Values()};
}

Products Defined(const BlockCase& test) {
  const int64_t hidden = test.experts.hidden;
  const int64_t width = test.experts.width;
  Guarded<float> gate(test.num_slots() * width);
  Guarded<float> up(test.num_slots() * width);
  Guarded<float> down(test.num_slots() * hidden);
  for (size_t s = 0; s < test.routing.ids.size(); ++s) {
    const int32_t id = test.routing.ids[s];
    if (id < 0 || test.global_to_local[static_cast<size_t>(id)] < 0) continue;
    const size_t e = static_cast<size_t>(id);
    const int64_t slot = static_cast<int64_t>(s);
    const float* x = test.x.data() + slot / test.routing.top_k * hidden;
    const float* act = test.act.data() + slot * width;
    for (int64_t i = 0; i < width; ++i) {
      gate[slot * width + i] =
          DefinedDot(x, test.experts.gate[e].row(i), hidden);
      up[slot * width + i] = DefinedDot(x, test.experts.up[e].row(i), hidden);
    }
    for (int64_t h = 0; h < hidden; ++h) {
      down[slot * hidden + h] =
          DefinedDot(act, test.experts.down[e].row(h), width);
    }
  }
  return {gate.Values(), up.Values(), down.Values()};
}

bool Same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         SameBits(a.data(), b.data(), static_cast<int64_t>(a.size()));
}

void ExpectSame(const Products& got, const Products& want) {
  EXPECT_TRUE(Same(got.gate, want.gate));
  EXPECT_TRUE(Same(got.up, want.up));
  EXPECT_TRUE(Same(got.down, want.down));
}

TEST(ExpertProductsTest, BothFormsGiveTheDefinedBitsForEveryRouting) {
  Random random(41);
  const int64_t num_experts = 8;
  const Experts experts(random, num_experts, 44, 22, DType::kBF16, DType::kF16,
                        DType::kF32);
  for (int64_t target : OnTarget::All()) {
    const OnTarget on(target);
    for (const Routing& routing : Routings(random, num_experts)) {
      SCOPED_TRACE(routing.name);
      const std::vector<float> x =
          RandomFloats(random, routing.live * experts.hidden);
      const std::vector<float> act =
          RandomFloats(random, routing.live * routing.top_k * experts.width);
      // All experts, some, and a rank that may own no selected one.
      for (const auto& range : {std::pair{0, 8}, {2, 5}, {6, 8}, {7, 7}}) {
        BlockCase test = {experts, routing,
                          OwnedRange(num_experts, range.first, range.second), x,
                          act};
        const Products want = Defined(test);
        for (int threads : {1, 3}) {
          test.threads = threads;
          ExpectSame(Indexed(test), want);
          for (int64_t tile_rows : {1, 4, 16}) {
            test.tile_rows = tile_rows;
            ExpectSame(GroupedForm(test), want);
          }
        }
      }
    }
  }
}

TEST(ExpertProductsTest, LargerExpertsInBlocks) {
  Random random(42);
  const Experts experts(random, 4, 1040, 150, DType::kBF16, DType::kBF16,
                        DType::kBF16);
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < 70; ++t) {
    const std::vector<int32_t> row = DistinctIds(random, 4, 2);
    ids.insert(ids.end(), row.begin(), row.end());
  }
  const Routing routing = {"two of four", 70, 2, ids};
  const std::vector<float> x = RandomFloats(random, 70 * 1040);
  const std::vector<float> act = RandomFloats(random, 140 * 150);
  const BlockCase test = {experts, routing, OwnedRange(4, 0, 4), x, act};
  const Products want = Defined(test);
  ExpectSame(Indexed(test), want);
  ExpectSame(GroupedForm(test), want);
}

}  // namespace
}  // namespace signet::backend::cpu
