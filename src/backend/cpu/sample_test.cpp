#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "backend/cpu/kernel_testing.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/philox.h"
#include "backend/cpu/sequence_testing.h"

namespace signet::backend::cpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

struct Drawn {
  std::vector<int32_t> ids;
  int32_t flag = 0;
};

Drawn Draw(ThreadPool& pool, const std::vector<float>& logits,
           const std::vector<SamplingRow>& params, LogitRows which,
           int64_t live) {
  const auto count = static_cast<int64_t>(params.size());
  const int64_t vocab = static_cast<int64_t>(logits.size()) / count;
  const LiveRows rows(live, live + 3);
  Guarded<int32_t> scratch(count * vocab), ids(count);
  Drawn drawn;
  Sample(pool, {.rows = rows.view(),
                .which = which,
                .vocab = vocab,
                .logits = logits.data(),
                .params = params.data(),
                .scratch = scratch.data(),
                .ids = ids.data(),
                .flag = &drawn.flag});
  EXPECT_TRUE(scratch.CanariesIntact() && ids.CanariesIntact());
  const int64_t written =
      which == LogitRows::kLast ? std::min<int64_t>(live, 1) : live;
  for (int64_t i = written; i < count; ++i) EXPECT_TRUE(ids.IsPoison(i));
  drawn.ids = ids.Values();
  drawn.ids.resize(static_cast<size_t>(written));
  return drawn;
}

int32_t DrawOne(const std::vector<float>& logits, SamplingRow params) {
  ThreadPool pool(1);
  if (params.id_bound == 0) {
    params.id_bound = static_cast<int32_t>(logits.size());
  }
  const Drawn drawn = Draw(pool, logits, {params}, LogitRows::kAll, 1);
  EXPECT_EQ(drawn.flag, 0);
  return drawn.ids[0];
}

// The contract, written out with a full sort.
int32_t WantedId(const std::vector<float>& logits, const SamplingRow& params) {
  std::vector<int32_t> ids(static_cast<size_t>(params.id_bound));
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](int32_t id) {
    return logits[static_cast<size_t>(id)];
  };
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
  if (params.temperature == 0) return ids[0];
  if (params.top_k > 0) {
    ids.resize(std::min(ids.size(), static_cast<size_t>(params.top_k)));
  }
  std::vector<double> e;
  double total = 0;
  for (const int32_t id : ids) {
    e.push_back(std::exp((double{logit(id)} - double{logit(ids[0])}) /
                         double{params.temperature}));
    total += e.back();
  }
  size_t kept = ids.size();
  double sum = total;
  if (params.top_p < 1) {
    sum = 0;
    for (kept = 0; kept == 0 || sum < params.top_p * total; ++kept) {
      sum += e[kept];
    }
  }
  const PhiloxCounter words =
      Philox4x32({params.sequence, params.position, 0, 0},
                 {params.seed_low, params.seed_high});
  const double threshold = std::ldexp(words[0] >> 8, -24) * sum;
  double running = 0;
  for (size_t i = 0; i < kept; ++i) {
    running += e[i];
    if (running > threshold) return ids[i];
  }
  return ids[kept - 1];
}

TEST(SampleTest, GreedyTakesTheGreatestAndTheLowerOfEqualIds) {
  EXPECT_EQ(DrawOne({1, 3, 2, 3, 3}, {}), 1);
  EXPECT_EQ(DrawOne({-5}, {}), 0);
  EXPECT_EQ(DrawOne({-5, -7, -5}, {}), 0);
  std::vector<float> logits(1001, -2.0f);
  logits[1000] = -1.0f;
  EXPECT_EQ(DrawOne(logits, {}), 1000);
  logits[515] = logits[17] = -1.0f;
  EXPECT_EQ(DrawOne(logits, {}), 17);
  // Greedy ignores the other parameters.
  EXPECT_EQ(DrawOne(logits, {.top_k = 5, .top_p = 0.1f, .seed_low = 9}), 17);
}

TEST(SampleTest, NoIdAtOrPastTheBoundIsDrawn) {
  Random random(1);
  std::vector<float> logits(300, 0.0f);
  for (size_t i = 200; i < 300; ++i) logits[i] = 50.0f;
  logits[250] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(DrawOne(logits, {.id_bound = 200}), 0);
  for (uint32_t position = 0; position < 200; ++position) {
    EXPECT_LT(
        DrawOne(logits,
                {.temperature = 1.0f, .id_bound = 200, .position = position}),
        200);
  }
  EXPECT_EQ(DrawOne({1, 2}, {.temperature = 1.0f, .id_bound = -1}), -1);
}

TEST(SampleTest, EqualsTheContractWithAFullSort) {
  Random random(2);
  for (int round = 0; round < 3000; ++round) {
    const int64_t vocab = 1 + random() % (round % 100 == 0 ? 20000 : 600);
    std::vector<float> logits = RandomFloats(random, vocab);
    const float spread = round % 3 == 0 ? 1.0f : 8.0f;
    for (float& logit : logits) {
      logit *= spread;
      // Ties, in plenty.
      if (round % 2 == 0) logit = std::round(logit);
    }
    SamplingRow params = {.temperature = 0.05f + Uniform(random, 0, 2),
                          .id_bound = static_cast<int32_t>(vocab),
                          .seed_low = static_cast<uint32_t>(random()),
                          .seed_high = static_cast<uint32_t>(random()),
                          .sequence = static_cast<uint32_t>(round),
                          .position = static_cast<uint32_t>(random())};
    if (random() % 2 == 0) params.top_k = static_cast<int32_t>(random() % 400);
    if (random() % 2 == 0) params.top_p = Uniform(random, 0, 1.1f);
    if (random() % 4 == 0) params.id_bound = 1 + params.id_bound / 2;
    ASSERT_EQ(DrawOne(logits, params), WantedId(logits, params)) << round;
  }
}

TEST(SampleTest, LimitsKeepTheFewestMostLikely) {
  // Probabilities 0.5, 0.25, 0.125, 0.0625 twice.
  const std::vector<float> logits = {std::log(0.25f), std::log(0.0625f),
                                     std::log(0.5f), std::log(0.0625f),
                                     std::log(0.125f)};
  const auto kept = [&](int32_t top_k, float top_p) {
    std::set<int32_t> ids;
    for (uint32_t position = 0; position < 500; ++position) {
      ids.insert(DrawOne(logits, {.temperature = 1.0f,
                                  .top_k = top_k,
                                  .top_p = top_p,
                                  .position = position}));
    }
    return ids;
  };
  using Ids = std::set<int32_t>;
  EXPECT_EQ(kept(0, 1.0f), (Ids{0, 1, 2, 3, 4}));
  EXPECT_EQ(kept(1, 1.0f), (Ids{2}));
  EXPECT_EQ(kept(4, 1.0f), (Ids{0, 1, 2, 4}));
  EXPECT_EQ(kept(99, 1.0f), (Ids{0, 1, 2, 3, 4}));
  EXPECT_EQ(kept(0, 0.0f), (Ids{2}));
  EXPECT_EQ(kept(0, 0.49f), (Ids{2}));
  EXPECT_EQ(kept(0, 0.51f), (Ids{0, 2}));
  EXPECT_EQ(kept(0, 0.9f), (Ids{0, 1, 2, 4}));
  // Of the two most likely, which sum to 0.75, 0.5 alone is two thirds.
  EXPECT_EQ(kept(2, 0.66f), (Ids{2}));
  EXPECT_EQ(kept(2, 0.67f), (Ids{0, 2}));
}

// Draws by position and by sequence follow the softmax.
TEST(SampleTest, DrawsFollowTheDistribution) {
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 2.0f, 0.5f, 1.5f};
  const float temperature = 0.7f;
  double total = 0;
  std::vector<double> probability;
  for (const float logit : logits) {
    probability.push_back(std::exp(double{logit} / double{temperature}));
    total += probability.back();
  }
  for (const bool by_position : {true, false}) {
    constexpr int kDraws = 60000;
    std::vector<SamplingRow> params;
    std::vector<float> all;
    for (uint32_t i = 0; i < kDraws; ++i) {
      params.push_back({.temperature = temperature,
                        .id_bound = 6,
                        .seed_low = 77,
                        .sequence = by_position ? 3 : i,
                        .position = by_position ? i : 3});
      all.insert(all.end(), logits.begin(), logits.end());
    }
    ThreadPool pool(2);
    const Drawn drawn = Draw(pool, all, params, LogitRows::kAll, kDraws);
    std::vector<int> counts(logits.size());
    for (const int32_t id : drawn.ids) ++counts[static_cast<size_t>(id)];
    double chi_square = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double expected = kDraws * probability[i] / total;
      chi_square += std::pow(counts[i] - expected, 2) / expected;
    }
    EXPECT_LT(chi_square, 20.5) << "5 degrees of freedom, p = 0.001";
  }
}

TEST(SampleTest, DrawsDependOnTheirKeyAloneAndNotOnTheRow) {
  Random random(5);
  const int64_t vocab = 1000;
  const std::vector<float> logits = RandomFloats(random, 65 * vocab);
  std::vector<SamplingRow> params;
  for (uint32_t i = 0; i < 65; ++i) {
    params.push_back({.temperature = 0.9f,
                      .id_bound = static_cast<int32_t>(vocab),
                      .seed_low = 1,
                      .seed_high = 2,
                      .sequence = i,
                      .position = 7 * i});
  }
  const std::vector<float> ids = SameEverywhere([&](ThreadPool& pool) {
    const Drawn drawn = Draw(pool, logits, params, LogitRows::kAll, 65);
    return std::vector<float>(drawn.ids.begin(), drawn.ids.end());
  });
  for (size_t i = 0; i < 65; ++i) {
    const auto* from = logits.data() + static_cast<int64_t>(i) * vocab;
    EXPECT_EQ(DrawOne({from, from + vocab}, params[i]),
              static_cast<int32_t>(ids[i]));
  }
  const auto draws = [&](SamplingRow row) {
    std::vector<int32_t> drawn;
    for (row.position = 0; row.position < 16; ++row.position) {
      drawn.push_back(DrawOne({logits.begin(), logits.begin() + vocab}, row));
    }
    return drawn;
  };
  const SamplingRow base = params[0];
  std::set<std::vector<int32_t>> different = {draws(base)};
  for (uint32_t SamplingRow::* field :
       {&SamplingRow::seed_low, &SamplingRow::seed_high,
        &SamplingRow::sequence}) {
    SamplingRow changed = base;
    ++(changed.*field);
    different.insert(draws(changed));
  }
  EXPECT_EQ(different.size(), 4u);
}

TEST(SampleTest, NonFiniteLogitsRaiseTheFlagOfTheirRowAlone) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {inf, -inf, nan}) {
    for (const float temperature : {0.0f, 1.0f}) {
      for (const size_t at : {0u, 15u, 16u, 32u}) {
        std::vector<float> logits(3 * 33, 0.5f);
        logits[33 + at] = bad;
        const SamplingRow row = {.temperature = temperature, .id_bound = 33};
        ThreadPool pool(2);
        const Drawn drawn =
            Draw(pool, logits, {row, row, row}, LogitRows::kAll, 3);
        EXPECT_EQ(drawn.flag, kFlagNonFinite);
        EXPECT_GE(drawn.ids[0], 0);
        EXPECT_EQ(drawn.ids[1], -1);
        EXPECT_GE(drawn.ids[2], 0);
        // Not a live row: no flag.
        EXPECT_EQ(Draw(pool, logits, {row, row, row}, LogitRows::kAll, 1).flag,
                  0);
      }
    }
  }
}

TEST(SampleTest, TheFlagIsOredInto) {
  std::vector<float> logits = {std::numeric_limits<float>::quiet_NaN()};
  SamplingRow params = {.id_bound = 1};
  int32_t scratch = 0, id = 0, flag = kFlagExpertRepeated;
  const LiveRows rows(1, 1);
  ThreadPool pool(1);
  Sample(pool, {rows.view(), LogitRows::kAll, 1, logits.data(), &params,
                &scratch, &id, &flag});
  EXPECT_EQ(flag, kFlagExpertRepeated | kFlagNonFinite);
}

TEST(SampleTest, LastDrawsOneRowHoweverManyLive) {
  ThreadPool pool(2);
  const SamplingRow row = {.id_bound = 3};
  EXPECT_EQ(Draw(pool, {1, 5, 2}, {row}, LogitRows::kLast, 64).ids,
            std::vector<int32_t>{1});
  EXPECT_TRUE(Draw(pool, {1, 5, 2}, {row}, LogitRows::kLast, 0).ids.empty());
}

}  // namespace
}  // namespace signet::backend::cpu
