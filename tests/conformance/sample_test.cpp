#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/conformance/delta_testing.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

constexpr int64_t kVocab = 248320;

class GpuSampleTest : public GpuKernelTest {
 protected:
  struct Drawn {
    std::vector<int32_t> ids;
    int32_t flag = 0;
    bool operator==(const Drawn&) const = default;
  };

  Drawn Draw(const std::vector<float>& logits,
             const std::vector<SamplingRow>& params, int64_t live,
             LogitRows which = LogitRows::kAll, int32_t flag = 0) {
    const auto count = static_cast<int64_t>(params.size());
    const auto rows =
        CallRows::One(live, 0, 0, which == LogitRows::kAll ? count : live + 3);
    DeviceArray<float> device_logits(logits);
    DeviceArray<SamplingRow> device_params(params);
    DeviceArray<int32_t> scratch(static_cast<int64_t>(logits.size()));
    DeviceArray<int32_t> ids(count);
    DeviceArray<int32_t> device_flag(std::vector<int32_t>{flag});
    kernels().Sample(KernelBench::Launch(),
                     {.rows = rows->device(),
                      .which = which,
                      .vocab = static_cast<int64_t>(logits.size()) / count,
                      .logits = device_logits.data(),
                      .params = device_params.data(),
                      .scratch = scratch.data(),
                      .ids = ids.data(),
                      .flag = device_flag.data()});
    Finish();
    EXPECT_TRUE(scratch.CanariesIntact());
    return {Written(ids, std::min(live, count)), device_flag.Get()[0]};
  }

  Drawn Want(const std::vector<float>& logits,
             const std::vector<SamplingRow>& params, int64_t live) {
    const auto count = static_cast<int64_t>(params.size());
    const auto rows = CallRows::One(live, 0, 0, count);
    std::vector<int32_t> scratch(logits.size());
    Drawn drawn;
    drawn.ids.resize(static_cast<size_t>(live));
    reference_.kernels().Sample(
        KernelBench::Launch(),
        {.rows = rows->host(),
         .which = LogitRows::kAll,
         .vocab = static_cast<int64_t>(logits.size()) / count,
         .logits = logits.data(),
         .params = params.data(),
         .scratch = scratch.data(),
         .ids = drawn.ids.data(),
         .flag = &drawn.flag});
    return drawn;
  }

  // All rows live, against the CPU; twice.
  void Compare(const std::vector<float>& logits,
               const std::vector<SamplingRow>& params) {
    const auto live = static_cast<int64_t>(params.size());
    const Drawn want = Want(logits, params, live);
    const Drawn got = Draw(logits, params, live);
    EXPECT_EQ(got.flag, want.flag);
    for (size_t i = 0; i < params.size(); ++i) {
      EXPECT_EQ(got.ids[i], want.ids[i])
          << "row " << i << " temperature " << params[i].temperature
          << " top_k " << params[i].top_k << " top_p " << params[i].top_p
          << " bound " << params[i].id_bound;
    }
    EXPECT_EQ(Draw(logits, params, live), got);
  }

  SamplingRow RandomParams(int64_t vocab) {
    SamplingRow params = {.temperature = 0.05f + Uniform(0, 2),
                          .id_bound = static_cast<int32_t>(vocab),
                          .seed_low = static_cast<uint32_t>(random_()),
                          .seed_high = static_cast<uint32_t>(random_()),
                          .sequence = static_cast<uint32_t>(random_()),
                          .position = static_cast<uint32_t>(random_())};
    if (random_() % 8 == 0) params.temperature = 0;
    if (random_() % 2 == 0)
      params.top_k = static_cast<int32_t>(random_() % 900);
    if (random_() % 2 == 0) params.top_p = Uniform(0, 1.1f);
    if (random_() % 4 == 0) params.id_bound = 1 + params.id_bound / 2;
    return params;
  }
  float Uniform(float low, float high) {
    return cpu::testing::Uniform(random_, low, high);
  }

  Random random_{5};
  Reference reference_;
};

TEST_F(GpuSampleTest, GreedyTakesTheGreatestAndTheLowerOfEqualIds) {
  for (const int64_t vocab : {1, 7, 600, 2048, 2049, 5003}) {
    const int64_t rows = 9;
    std::vector<float> logits = RandomFloats(random_, rows * vocab);
    for (float& logit : logits) logit = std::round(logit * 8);
    logits[0] = 0.0f;
    std::vector<SamplingRow> params(
        rows, {.top_k = 3, .top_p = 0.5f, .id_bound = 1 << 30});
    params[1].id_bound = static_cast<int32_t>((vocab + 1) / 2);
    params[2].id_bound = 0;
    params[3].id_bound = -4;
    Compare(logits, params);
  }
  std::vector<float> zeros(4096, -1.0f);
  zeros[3000] = -0.0f;
  zeros[3001] = 0.0f;
  Compare(zeros, {{.id_bound = 4096}});
}

TEST_F(GpuSampleTest, DrawsEqualTheCpus) {
  for (const int64_t vocab : {1, 7, 600, 2049, 5003, 20000}) {
    for (const float spread : {1.0f, 8.0f}) {
      for (const bool ties : {false, true}) {
        SCOPED_TRACE(::testing::Message() << vocab << " " << spread);
        const int64_t rows = 65;
        std::vector<float> logits = RandomFloats(random_, rows * vocab);
        std::vector<SamplingRow> params;
        for (float& logit : logits) {
          logit *= spread;
          if (ties) logit = std::round(logit);
        }
        for (int64_t i = 0; i < rows; ++i) {
          params.push_back(RandomParams(vocab));
        }
        Compare(logits, params);
      }
    }
  }
}

TEST_F(GpuSampleTest, DrawsOfALargeVocabularyEqualTheCpus) {
  std::vector<float> logits(static_cast<size_t>(4 * kVocab));
  // As of a model: a few likely ids, many unlikely.
  for (float& logit : logits) {
    logit = 4 * Uniform(-1, 1) + 4 * Uniform(-1, 1) + 4 * Uniform(-1, 1);
  }
  const auto bound = static_cast<int32_t>(kVocab - 276);
  const SamplingRow base = {
      .temperature = 0.7f, .id_bound = bound, .seed_low = 7, .sequence = 2};
  for (uint32_t position = 0; position < 4; ++position) {
    std::vector<SamplingRow> params(4, base);
    for (SamplingRow& row : params) row.position = position;
    params[0].top_k = 20;
    params[0].top_p = 0.95f;
    params[1].top_p = 0.6f;
    params[3].temperature = 0;
    Compare(logits, params);
  }
}

// What the list of likely ids cannot decide.
TEST_F(GpuSampleTest, SearchesEqualTheCpus) {
  for (const int64_t vocab : {5000, 5003, 30000}) {
    for (const int kind : {0, 1, 2}) {
      SCOPED_TRACE(::testing::Message() << vocab << " " << kind);
      std::vector<float> logits = RandomFloats(random_, 16 * vocab);
      for (float& logit : logits) {
        // All equal; three values; nearly flat.
        logit = kind == 0 ? 2.5f : kind == 1 ? std::round(logit) : logit / 4;
      }
      std::vector<SamplingRow> params;
      for (int i = 0; i < 16; ++i) {
        SamplingRow row = RandomParams(vocab);
        row.temperature = 0.5f + Uniform(0, 2);
        row.id_bound = static_cast<int32_t>(vocab);
        row.top_k = i % 4 == 0 ? 4500 : i % 4 == 1 ? 1000 + i : 0;
        row.top_p = i % 3 == 0 ? Uniform(0.5f, 1) : 1.0f;
        params.push_back(row);
      }
      params[15].top_p = 0.0f;
      Compare(logits, params);
    }
  }
}

TEST_F(GpuSampleTest, NonFiniteLogitsRaiseTheFlagOfTheirRowAlone) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr size_t kWidth = 4100;
  for (const float bad : {inf, -inf, nan}) {
    for (const float temperature : {0.0f, 1.0f}) {
      for (const size_t at :
           {size_t{0}, size_t{15}, size_t{2047}, size_t{2048}, kWidth - 1}) {
        std::vector<float> logits(3 * kWidth, 0.5f);
        logits[kWidth + at] = bad;
        const SamplingRow row = {.temperature = temperature,
                                 .id_bound = static_cast<int32_t>(kWidth)};
        const Drawn drawn = Draw(logits, {row, row, row}, 3);
        EXPECT_EQ(drawn.flag, kFlagNonFinite);
        EXPECT_GE(drawn.ids[0], 0);
        EXPECT_EQ(drawn.ids[1], -1);
        EXPECT_GE(drawn.ids[2], 0);
        // Not a live row, or an id that may not be drawn: no flag.
        EXPECT_EQ(Draw(logits, {row, row, row}, 1).flag, 0);
        SamplingRow bounded = row;
        bounded.id_bound = static_cast<int32_t>(at);
        EXPECT_EQ(Draw(logits, {row, bounded, row}, 3).flag, 0);
      }
    }
  }
}

TEST_F(GpuSampleTest, TheFlagIsOredIntoAndLastDrawsOneRow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const SamplingRow row = {.id_bound = 3};
  EXPECT_EQ(
      Draw({1, nan, 2}, {row}, 1, LogitRows::kAll, kFlagExpertRepeated).flag,
      kFlagExpertRepeated | kFlagNonFinite);
  EXPECT_EQ(Draw({1, 5, 2}, {row}, 64, LogitRows::kLast).ids,
            std::vector<int32_t>{1});
  EXPECT_TRUE(Draw({1, 5, 2}, {row}, 0, LogitRows::kLast).ids.empty());
}

TEST_F(GpuSampleTest, DrawsDoNotDependOnTheOtherRows) {
  constexpr int64_t kWidth = 3000;
  constexpr size_t kRows = 17;
  const std::vector<float> logits = RandomFloats(random_, kRows * kWidth);
  std::vector<SamplingRow> params;
  for (size_t i = 0; i < kRows; ++i) params.push_back(RandomParams(kWidth));
  const Drawn all = Draw(logits, params, kRows);
  for (size_t i = 0; i < kRows; ++i) {
    const auto from = logits.begin() + static_cast<int64_t>(i) * kWidth;
    EXPECT_EQ(Draw({from, from + kWidth}, {params[i]}, 1).ids[0], all.ids[i]);
  }
}

}  // namespace
}  // namespace signet::backend::gpu
