#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "backend/cpu/kernel_testing.h"
#include "backend/cpu/ops.h"

namespace signet::backend::cpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

struct Routes {
  std::vector<int32_t> ids;
  std::vector<float> weights;
  int32_t flag = 0;
};

Routes RouteRows(const std::vector<float>& scores, int64_t num_experts,
                 int64_t top_k, bool renormalise, int64_t live,
                 int64_t capacity, int threads = 2) {
  ThreadPool pool(threads);
  const LiveRows rows(live, capacity);
  Guarded<int32_t> ids(capacity * top_k);
  Guarded<float> weights(capacity * top_k);
  Guarded<int32_t> flag(1);
  flag[0] = 0;
  Route(pool, {.rows = rows.view(),
               .num_experts = num_experts,
               .top_k = top_k,
               .renormalise = renormalise,
               .scores = scores.data(),
               .ids = ids.data(),
               .weights = weights.data(),
               .flag = flag.data()});
  EXPECT_TRUE(ids.CanariesIntact() && weights.CanariesIntact() &&
              flag.CanariesIntact());
  for (int64_t s = live * top_k; s < capacity * top_k; ++s) {
    EXPECT_TRUE(ids.IsPoison(s) && weights.IsPoison(s));
  }
  Routes out = {ids.Values(), weights.Values(), flag[0]};
  out.ids.resize(static_cast<size_t>(live * top_k));
  out.weights.resize(static_cast<size_t>(live * top_k));
  return out;
}

/// The definition: ids by score descending, then id ascending; weights in
/// double precision.
void ExpectDefined(const Routes& got, const std::vector<float>& scores,
                   int64_t num_experts, int64_t top_k, bool renormalise,
                   int64_t live) {
  for (int64_t row = 0; row < live; ++row) {
    const float* score = scores.data() + row * num_experts;
    std::vector<int32_t> order(static_cast<size_t>(num_experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return score[a] > score[b]; });
    const int64_t summed = renormalise ? top_k : num_experts;
    const auto term = [&](int64_t k) {
      return std::exp(
          static_cast<double>(score[order[static_cast<size_t>(k)]]) -
          static_cast<double>(score[order[0]]));
    };
    double sum = 0;
    for (int64_t k = 0; k < summed; ++k) sum += term(k);
    for (int64_t k = 0; k < top_k; ++k) {
      const size_t slot = static_cast<size_t>(row * top_k + k);
      ASSERT_EQ(got.ids[slot], order[static_cast<size_t>(k)])
          << "row " << row << ", k " << k;
      const double want = term(k) / sum;
      ASSERT_NEAR(got.weights[slot], want, 1e-5 * want + 1e-30);
    }
  }
}

TEST(RouteTest, SelectsAndWeighsByTheDefinition) {
  Random random(21);
  for (int64_t target : OnTarget::All()) {
    const OnTarget on(target);
    for (int64_t num_experts : {1, 8, 22, 31, 129, 256, 1030}) {
      for (int64_t top_k : {int64_t{1}, int64_t{8}, num_experts}) {
        if (top_k > num_experts) continue;
        for (bool renormalise : {true, false}) {
          const int64_t live = 7;
          std::vector<float> scores = RandomFloats(random, live * num_experts);
          for (float& score : scores) score *= 6.0f;
          const Routes got = RouteRows(scores, num_experts, top_k, renormalise,
                                       live, live + 2);
          EXPECT_EQ(got.flag, 0);
          ExpectDefined(got, scores, num_experts, top_k, renormalise, live);
        }
      }
    }
  }
}

TEST(RouteTest, TiesGoToTheLowerIdAtTheBoundaryToo) {
  // Coarse scores tie often, everywhere, zeros of both signs included.
  Random random(22);
  const int64_t live = 50;
  const int64_t num_experts = 40;
  std::vector<float> scores(static_cast<size_t>(live * num_experts));
  for (float& score : scores) {
    score = static_cast<float>(static_cast<int>(random() % 5)) - 2.0f;
    if (score == 0.0f && random() % 2 == 0) score = -0.0f;
  }
  for (int64_t top_k : {1, 2, 8, 40}) {
    const Routes got = RouteRows(scores, num_experts, top_k, true, live, live);
    ExpectDefined(got, scores, num_experts, top_k, true, live);
  }
  const std::vector<float> equal(16, 3.25f);
  const Routes got = RouteRows(equal, 16, 4, true, 1, 1);
  EXPECT_EQ(got.ids, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(got.weights, (std::vector<float>{0.25f, 0.25f, 0.25f, 0.25f}));
}

TEST(RouteTest, NonFiniteRowsAreAbsentAndFlaggedAlone) {
  Random random(23);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf}) {
    for (int64_t at : {0, 5, 21}) {
      std::vector<float> scores = RandomFloats(random, 3 * 22);
      const Routes clean = RouteRows(scores, 22, 4, true, 3, 3);
      scores[static_cast<size_t>(22 + at)] = bad;
      const Routes got = RouteRows(scores, 22, 4, true, 3, 3);
      EXPECT_EQ(got.flag, kFlagNonFinite);
      for (size_t s = 0; s < 12; ++s) {
        const bool absent = s / 4 == 1;
        EXPECT_EQ(got.ids[s], absent ? -1 : clean.ids[s]);
        EXPECT_EQ(got.weights[s], absent ? 0.0f : clean.weights[s]);
      }
    }
  }
}

TEST(RouteTest, RowsPastTheLiveOnesRaiseNothing) {
  std::vector<float> scores(4 * 8, std::numeric_limits<float>::quiet_NaN());
  std::fill_n(scores.begin(), 8, 1.0f);
  EXPECT_EQ(RouteRows(scores, 8, 2, true, 1, 4).flag, 0);
  EXPECT_EQ(RouteRows(scores, 8, 2, true, 0, 4).flag, 0);
}

TEST(RouteTest, SameBitsForEveryThreadCountAndBatch) {
  Random random(24);
  const std::vector<float> scores = RandomFloats(random, 33 * 64);
  const Routes want = RouteRows(scores, 64, 8, false, 33, 33, 1);
  for (int threads : {2, 3}) {
    for (int64_t live : {1, 4, 33}) {
      const Routes got = RouteRows(scores, 64, 8, false, live, 33, threads);
      EXPECT_TRUE(std::equal(got.ids.begin(), got.ids.end(), want.ids.begin()));
      EXPECT_TRUE(SameBits(got.weights.data(), want.weights.data(), live * 8));
    }
  }
}

struct PrecomputedCase {
  std::vector<int32_t> ids;
  std::vector<float> weights;
  int32_t flag;
};

TEST(PrecomputedRouteTest, FaultyRowsAreAbsentAndFlagged) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<PrecomputedCase> cases = {
      {{3, 0, 7}, {0.5f, 0.25f, -1.0f}, 0},
      {{3, 3, 7}, {1, 1, 1}, kFlagExpertRepeated},
      {{7, 0, 7}, {1, 1, 1}, kFlagExpertRepeated},
      {{0, 1, 8}, {1, 1, 1}, kFlagExpertOutOfRange},
      {{-1, 1, 2}, {1, 1, 1}, kFlagExpertOutOfRange},
      {{0, 1, 2}, {1, kNaN, 1}, kFlagNonFinite},
      {{0, 1, 2}, {1, 1, -kInf}, kFlagNonFinite},
      {{-5, 2, 2},
       {1, 1, kInf},
       kFlagNonFinite | kFlagExpertOutOfRange | kFlagExpertRepeated},
  };
  for (const PrecomputedCase& test : cases) {
    // Row 0 is sound, row 1 the case, row 2 is not live and unsound.
    std::vector<int32_t> in_ids = {4, 5, 6};
    std::vector<float> in_weights = {0.25f, 0.5f, 0.125f};
    in_ids.insert(in_ids.end(), test.ids.begin(), test.ids.end());
    in_ids.insert(in_ids.end(), {9, 9, 9});
    in_weights.insert(in_weights.end(), test.weights.begin(),
                      test.weights.end());
    in_weights.insert(in_weights.end(), {kNaN, kNaN, kNaN});
    ThreadPool pool(2);
    const LiveRows rows(2, 3);
    Guarded<int32_t> ids(9);
    Guarded<float> weights(9);
    Guarded<int32_t> flag(1);
    flag[0] = 8;  // another's bit stays
    PrecomputedRoute(pool, {.rows = rows.view(),
                            .num_experts = 8,
                            .top_k = 3,
                            .in_ids = in_ids.data(),
                            .in_weights = in_weights.data(),
                            .ids = ids.data(),
                            .weights = weights.data(),
                            .flag = flag.data()});
    EXPECT_EQ(flag[0], 8 | test.flag);
    for (int64_t k = 0; k < 3; ++k) {
      const size_t i = static_cast<size_t>(k);
      EXPECT_EQ(ids[k], in_ids[i]);
      EXPECT_EQ(weights[k], in_weights[i]);
      EXPECT_EQ(ids[3 + k], test.flag == 0 ? test.ids[i] : -1);
      EXPECT_EQ(weights[3 + k], test.flag == 0 ? test.weights[i] : 0.0f);
      EXPECT_TRUE(ids.IsPoison(6 + k) && weights.IsPoison(6 + k));
    }
    EXPECT_TRUE(ids.CanariesIntact() && weights.CanariesIntact());
  }
}

}  // namespace
}  // namespace signet::backend::cpu
