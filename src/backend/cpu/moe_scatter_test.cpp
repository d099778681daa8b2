#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/cpu/moe_testing.h"
#include "backend/cpu/ops.h"

namespace signet::backend::cpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

/// The whole contract of a scatter, from its definition.
void ExpectSorted(const Grouped& got, const std::vector<int32_t>& ids,
                  const std::vector<int32_t>& global_to_local) {
  const auto local_of = [&](int32_t id) {
    return id < 0 ? -1 : global_to_local[static_cast<size_t>(id)];
  };
  std::vector<int32_t> sorted(static_cast<size_t>(got.max_rows), -1);
  std::vector<int32_t> tiles(static_cast<size_t>(got.max_rows / got.tile_rows),
                             -1);
  std::vector<int32_t> inverse(static_cast<size_t>(got.inverse_perm.size()),
                               -1);
  std::vector<int32_t> counts;
  std::vector<int32_t> offsets = {0};
  size_t row = 0;
  for (int32_t local = 0; local < got.counts.size(); ++local) {
    for (size_t slot = 0; slot < ids.size(); ++slot) {
      if (local_of(ids[slot]) != local) continue;
      ASSERT_LT(row, sorted.size());
      if (row % static_cast<size_t>(got.tile_rows) == 0) {
        tiles[row / static_cast<size_t>(got.tile_rows)] = local;
      }
      inverse[slot] = static_cast<int32_t>(row);
      sorted[row++] = static_cast<int32_t>(slot);
    }
    while (row % static_cast<size_t>(got.tile_rows) != 0) ++row;
    counts.push_back(static_cast<int32_t>(row) - offsets.back());
    offsets.push_back(static_cast<int32_t>(row));
  }
  EXPECT_EQ(got.sorted_slot.Values(), sorted);
  EXPECT_EQ(got.tile_expert.Values(), tiles);
  EXPECT_EQ(got.inverse_perm.Values(), inverse);
  EXPECT_EQ(got.counts.Values(), counts);
  EXPECT_EQ(got.offsets.Values(), offsets);
  EXPECT_TRUE(got.CanariesIntact());
}

TEST(ScatterTest, EveryRoutingOnEveryRankFitsItsProvenCapacity) {
  Random random(31);
  ThreadPool pool(2);
  for (int64_t num_experts : {4, 9}) {
    for (const Routing& routing : Routings(random, num_experts)) {
      for (int64_t tile_rows : {1, 2, 3, 4, 16}) {
        for (int64_t begin : {int64_t{0}, num_experts / 2}) {
          for (int64_t end : {num_experts / 2 + 1, num_experts}) {
            SCOPED_TRACE(routing.name + ", tile " + std::to_string(tile_rows));
            const std::vector<int32_t> map =
                OwnedRange(num_experts, begin, end);
            const int64_t capacity = routing.live + 2;
            const LiveRows rows(routing.live, capacity);
            Grouped grouped(capacity * routing.top_k, end - begin, tile_rows);
            grouped.Fill(pool, rows.view(), routing.top_k, map,
                         routing.ids.data());
            ExpectSorted(grouped, routing.ids, map);
          }
        }
      }
    }
  }
}

/// Calls visit(ids) for every assignment of `num_slots` slots to experts.
template <typename Visit>
void ForAllAssignments(int64_t num_slots, int32_t num_experts,
                       const Visit& visit) {
  std::vector<int32_t> ids(static_cast<size_t>(num_slots), 0);
  for (;;) {
    visit(ids);
    size_t at = 0;
    while (at < ids.size() && ++ids[at] == num_experts) ids[at++] = 0;
    if (at == ids.size()) return;
  }
}

TEST(ScatterTest, TheCapacityIsEnoughAndReachedForEverySmallRouting) {
  ThreadPool pool(1);
  for (int64_t num_slots : {1, 2, 3, 5, 7}) {
    for (int32_t num_experts : {1, 2, 3, 4}) {
      for (int64_t tile_rows : {1, 2, 3, 4, 8}) {
        const std::vector<int32_t> map =
            OwnedRange(num_experts, 0, num_experts);
        const LiveRows rows(num_slots, num_slots);
        int64_t most = 0;
        ForAllAssignments(num_slots, num_experts, [&](const auto& ids) {
          Grouped grouped(num_slots, num_experts, tile_rows);
          grouped.Fill(pool, rows.view(), 1, map, ids.data());
          most = std::max<int64_t>(most, grouped.offsets[num_experts]);
          ASSERT_TRUE(grouped.CanariesIntact());
        });
        EXPECT_EQ(most, GroupedCapacity(num_slots, num_experts, tile_rows))
            << num_slots << " slots, " << num_experts << " experts, tile "
            << tile_rows;
      }
    }
  }
}

TEST(ScatterTest, AShorterChunkLeavesNothingOfTheOneBefore) {
  Random random(32);
  ThreadPool pool(2);
  const int64_t capacity = 64;
  const int64_t num_experts = 8;
  const std::vector<int32_t> map = OwnedRange(num_experts, 2, 7);
  Grouped grouped(capacity * 2, 5, 4);
  for (int64_t live : {64, 3, 17, 0, 1}) {
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < live; ++t) {
      const std::vector<int32_t> row = DistinctIds(random, num_experts, 2);
      ids.insert(ids.end(), row.begin(), row.end());
    }
    const LiveRows rows(live, capacity);
    grouped.Fill(pool, rows.view(), 2, map, ids.data());
    ExpectSorted(grouped, ids, map);
  }
}

TEST(ScatterDeathTest, RowsThatDoNotFitAreNeverWritten) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::vector<int32_t> map = OwnedRange(3, 0, 3);
  const std::vector<int32_t> ids = {0, 1, 2, 0};
  const LiveRows rows(4, 4);
  ThreadPool pool(1);
  Grouped fits(4, 3, 4, 12);
  fits.Fill(pool, rows.view(), 1, map, ids.data());
  Grouped short_by_a_tile(4, 3, 4, 8);
  EXPECT_DEATH(short_by_a_tile.Fill(pool, rows.view(), 1, map, ids.data()),
               "max_rows");
}

TEST(UnscatterTest, PutsRealRowsBackAndLeavesTheRest) {
  Random random(33);
  ThreadPool pool(3);
  const int64_t num_experts = 6;
  for (const Routing& routing : Routings(random, num_experts)) {
    SCOPED_TRACE(routing.name);
    const int64_t width = 5;
    const std::vector<int32_t> map = OwnedRange(num_experts, 1, 5);
    const int64_t capacity = routing.live + 1;
    const int64_t num_slots = capacity * routing.top_k;
    const LiveRows rows(routing.live, capacity);
    Grouped grouped(num_slots, 4, 4);
    grouped.Fill(pool, rows.view(), routing.top_k, map, routing.ids.data());
    const std::vector<float> y =
        RandomFloats(random, grouped.max_rows * 2 * width);
    Guarded<float> gate(num_slots * width);
    Guarded<float> up(num_slots * width);
    Unscatter(pool, {.rows = rows.view(),
                     .max_rows = grouped.max_rows,
                     .width = width,
                     .sorted_slot = grouped.sorted_slot.data(),
                     .y = y.data(),
                     .gate = gate.data(),
                     .up = up.data()});
    EXPECT_TRUE(gate.CanariesIntact() && up.CanariesIntact());
    for (int64_t s = 0; s < num_slots; ++s) {
      const int64_t row = grouped.inverse_perm[s];
      for (int64_t i = 0; i < width; ++i) {
        if (row < 0) {
          EXPECT_TRUE(gate.IsPoison(s * width + i));
          EXPECT_TRUE(up.IsPoison(s * width + i));
          continue;
        }
        const float* from = y.data() + row * 2 * width;
        EXPECT_EQ(gate[s * width + i], from[i]);
        EXPECT_EQ(up[s * width + i], from[width + i]);
      }
    }
  }
}

}  // namespace
}  // namespace signet::backend::cpu
