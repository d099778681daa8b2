#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "backend/cpu/moe_testing.h"
#include "backend/cpu/ops.h"

namespace signet::backend::cpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

struct Fold {
  int64_t num_experts = 8;
  int64_t lanes = 8;
  int64_t first_lane = 0;
  int64_t num_lanes = 8;
  int64_t width = 5;
  int threads = 2;
};

/// The experts whose lanes a rank owns.
std::vector<int32_t> ExpertsOfLanes(const Fold& fold) {
  std::vector<int32_t> map(static_cast<size_t>(fold.num_experts), -1);
  int32_t next = 0;
  for (int64_t e = 0; e < fold.num_experts; ++e) {
    const int64_t lane = e * fold.lanes / fold.num_experts - fold.first_lane;
    if (lane >= 0 && lane < fold.num_lanes)
      map[static_cast<size_t>(e)] = next++;
  }
  return map;
}

std::vector<float> CombineRows(const Fold& fold, const Routing& routing,
                               const std::vector<float>& weights,
                               const std::vector<float>& d,
                               const int32_t* inverse_perm) {
  ThreadPool pool(fold.threads);
  const int64_t capacity = routing.live + 2;
  const LiveRows rows(routing.live, capacity);
  const std::vector<int32_t> map = ExpertsOfLanes(fold);
  Guarded<float> out(capacity * fold.width);
  Combine(pool, {.rows = rows.view(),
                 .top_k = routing.top_k,
                 .num_experts = fold.num_experts,
                 .lanes = fold.lanes,
                 .first_lane = fold.first_lane,
                 .num_lanes = fold.num_lanes,
                 .width = fold.width,
                 .ids = routing.ids.data(),
                 .weights = weights.data(),
                 .d = d.data(),
                 .inverse_perm = inverse_perm,
                 .global_to_local = map.data(),
                 .out = out.data()});
  EXPECT_TRUE(out.CanariesIntact());
  for (int64_t i = routing.live * fold.width; i < out.size(); ++i) {
    EXPECT_TRUE(out.IsPoison(i));
  }
  std::vector<float> values = out.Values();
  values.resize(static_cast<size_t>(routing.live * fold.width));
  return values;
}

/// The tree of contract N2 over lanes [first, first + count), by definition.
float TreeSum(const std::vector<float>& lanes, size_t first, size_t count) {
  if (count == 1) return lanes[first];
  return TreeSum(lanes, first, count / 2) +
         TreeSum(lanes, first + count / 2, count / 2);
}

std::vector<float> Defined(const Fold& fold, const Routing& routing,
                           const std::vector<float>& weights,
                           const std::vector<float>& d) {
  std::vector<float> out;
  for (int64_t t = 0; t < routing.live; ++t) {
    for (int64_t h = 0; h < fold.width; ++h) {
      std::vector<float> lanes(static_cast<size_t>(fold.lanes), 0.0f);
      for (int64_t k = 0; k < routing.top_k; ++k) {
        const int64_t s = t * routing.top_k + k;
        const int64_t id = routing.ids[static_cast<size_t>(s)];
        if (id < 0) continue;
        float& lane =
            lanes[static_cast<size_t>(id * fold.lanes / fold.num_experts)];
        lane = std::fma(weights[static_cast<size_t>(s)],
                        d[static_cast<size_t>(s * fold.width + h)], lane);
      }
      out.push_back(TreeSum(lanes, static_cast<size_t>(fold.first_lane),
                            static_cast<size_t>(fold.num_lanes)));
    }
  }
  return out;
}

bool Same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         SameBits(a.data(), b.data(), static_cast<int64_t>(a.size()));
}

/// Magnitudes far apart, so that another order gives other bits.
std::vector<float> WideFloats(Random& random, int64_t count) {
  std::vector<float> values = RandomFloats(random, count);
  for (float& value : values) {
    value = std::ldexp(value, static_cast<int>(random() % 24));
  }
  return values;
}

TEST(CombineTest, FoldsByTheDefinitionOnEveryRank) {
  Random random(51);
  for (int64_t target : OnTarget::All()) {
    const OnTarget on(target);
    for (int64_t num_experts : {4, 8, 12, 40}) {
      const int64_t lanes = num_experts % 8 == 0 ? 8 : 4;
      for (const Routing& routing : Routings(random, num_experts)) {
        SCOPED_TRACE(routing.name);
        for (int64_t width : {1, 5, 300}) {
          const int64_t num_slots = routing.live * routing.top_k;
          const std::vector<float> weights = RandomFloats(random, num_slots);
          std::vector<float> d = WideFloats(random, num_slots * width);
          for (int64_t num_lanes = lanes; num_lanes >= 1; num_lanes /= 2) {
            for (int64_t first = 0; first < lanes; first += num_lanes) {
              const Fold fold = {num_experts, lanes, first, num_lanes, width};
              EXPECT_TRUE(Same(CombineRows(fold, routing, weights, d, nullptr),
                               Defined(fold, routing, weights, d)));
            }
          }
        }
      }
    }
  }
}

/// Sums ranks' results as the all-reduce must: the rest of the tree.
std::vector<float> Reduce(std::vector<std::vector<float>> ranks) {
  while (ranks.size() > 1) {
    for (size_t r = 0; r < ranks.size() / 2; ++r) {
      std::vector<float> sum = ranks[2 * r];
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += ranks[2 * r + 1][i];
      ranks[r] = sum;
    }
    ranks.resize(ranks.size() / 2);
  }
  return ranks[0];
}

TEST(CombineTest, AnyNumberOfRanksAndThreadsGivesTheBitsOfOne) {
  Random random(52);
  for (const Routing& routing : Routings(random, 16)) {
    SCOPED_TRACE(routing.name);
    const int64_t width = 33;
    const int64_t num_slots = routing.live * routing.top_k;
    const std::vector<float> weights = RandomFloats(random, num_slots);
    const std::vector<float> d = WideFloats(random, num_slots * width);
    const std::vector<float> one =
        CombineRows({16, 8, 0, 8, width, 1}, routing, weights, d, nullptr);
    for (int64_t ranks : {2, 4, 8}) {
      std::vector<std::vector<float>> partials;
      for (int64_t r = 0; r < ranks; ++r) {
        const int64_t each = 8 / ranks;
        partials.push_back(CombineRows({16, 8, r * each, each, width, 3},
                                       routing, weights, d, nullptr));
      }
      EXPECT_TRUE(Same(Reduce(partials), one)) << ranks << " ranks";
    }
  }
}

TEST(CombineTest, GroupedRowsGiveTheBitsOfIndexedOnes) {
  Random random(53);
  ThreadPool pool(2);
  const int64_t width = 40;
  for (const Routing& routing : Routings(random, 8)) {
    SCOPED_TRACE(routing.name);
    const int64_t num_slots = routing.live * routing.top_k;
    const std::vector<float> weights = RandomFloats(random, num_slots);
    const std::vector<float> d = WideFloats(random, num_slots * width);
    for (int64_t first : {0, 4}) {
      const Fold fold = {8, 8, first, 4, width};
      const std::vector<int32_t> map = ExpertsOfLanes(fold);
      const int64_t capacity = routing.live + 2;
      const LiveRows rows(routing.live, capacity);
      Grouped grouped(capacity * routing.top_k, 4, 4);
      grouped.Fill(pool, rows.view(), routing.top_k, map, routing.ids.data());
      Guarded<float> rows_d(grouped.max_rows * width);
      for (int64_t s = 0; s < num_slots; ++s) {
        const int64_t row = grouped.inverse_perm[s];
        if (row < 0) continue;
        std::copy_n(d.data() + s * width, width, rows_d.data() + row * width);
      }
      EXPECT_TRUE(Same(CombineRows(fold, routing, weights, rows_d.Values(),
                                   grouped.inverse_perm.data()),
                       CombineRows(fold, routing, weights, d, nullptr)));
    }
  }
}

TEST(CombineTest, ATokenWithoutASlotHereIsPositiveZeroWhateverMemoryHolds) {
  const Routing routing = {"foreign", 2, 2, {0, 1, -1, -1}};
  const Fold fold = {8, 8, 4, 4, 7};
  const std::vector<float> poison(4 * 7,
                                  std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> weights(4, -1.0f);
  for (float value : CombineRows(fold, routing, weights, poison, nullptr)) {
    EXPECT_EQ(std::bit_cast<uint32_t>(value), 0u);
  }
  // A slot that the scatter left out adds nothing, whosever its expert is.
  const std::vector<int32_t> left_out(8, -1);
  const Routing owned = {"owned", 2, 2, {4, 5, 6, 7}};
  for (float value :
       CombineRows(fold, owned, weights, poison, left_out.data())) {
    EXPECT_EQ(std::bit_cast<uint32_t>(value), 0u);
  }
}

TEST(CombineTest, TheOrderIsTheTreesNotALeftFold) {
  // Lanes 1e8, 1, -1e8, 1: the tree gives (1e8 + 1) + (-1e8 + 1) = 0, a left
  // fold 1.
  const Routing routing = {"one token", 1, 4, {0, 1, 2, 3}};
  const Fold fold = {4, 4, 0, 4, 1};
  const std::vector<float> got =
      CombineRows(fold, routing, {1, 1, 1, 1}, {1e8f, 1, -1e8f, 1}, nullptr);
  EXPECT_EQ(got[0], 0.0f);
}

}  // namespace
}  // namespace signet::backend::cpu
