#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "backend/cpu/attention_testing.h"
#include "backend/cpu/kernel_testing.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/sequence_testing.h"

namespace signet::backend::cpu {
namespace {

using tensor::DType;
using namespace testing;  // NOLINT(google-build-using-namespace)

TEST(KvAppendTest, WritesItsRowsAndNothingElse) {
  Random random(1);
  for (const int64_t page_size : {1, 5, 64}) {
    const CacheShape shape = {DType::kF32, 3, 40, page_size, 2, 24};
    PagedCache cache(random, shape);
    const std::vector<float> k = RandomFloats(random, 2 * 48);
    const std::vector<float> v = RandomFloats(random, 2 * 48);
    const SequenceRows rows = SequenceRows::Each({2, 0}, {39, 7});
    ThreadPool pool(2);
    KvAppend(pool, {rows.view(), k.data(), v.data(), cache.view()});
    for (int64_t slot = 0; slot < 3; ++slot) {
      for (int64_t token = 0; token < 40; ++token) {
        const int64_t row = slot == 2 && token == 39  ? 0
                            : slot == 0 && token == 7 ? 1
                                                      : -1;
        for (int64_t i = 0; i < 48; ++i) {
          const float key = cache.Key(slot, token, i / 24, i % 24);
          const float value = cache.Value(slot, token, i / 24, i % 24);
          if (row < 0) {
            ASSERT_TRUE(std::isnan(key) && std::isnan(value));
          } else {
            ASSERT_EQ(key, k[static_cast<size_t>(row * 48 + i)]);
            ASSERT_EQ(value, v[static_cast<size_t>(row * 48 + i)]);
          }
        }
      }
    }
  }
}

TEST(KvAppendTest, BF16RoundsToNearestEven) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> in = {1.0f,
                                 1.0f + 0x1p-8f,
                                 1.0f + 0x3p-8f,
                                 1.0f + 0x1p-8f + 0x1p-20f,
                                 -1.0f - 0x1p-8f,
                                 3.4e38f,
                                 -0.0f,
                                 inf,
                                 nan,
                                 0x1p-133f,
                                 0x1p-134f,
                                 1e-3f};
  const std::vector<float> want = {
      1.0f, 1.0f, 1.0f + 0x1p-6f, 1.0f + 0x1p-7f, -1.0f,      inf, -0.0f,
      inf,  nan,  0x1p-133f,      0.0f,           0x1.06p-10f};
  Random random(1);
  const auto n = static_cast<int64_t>(in.size());
  PagedCache cache(random, {DType::kBF16, 1, 1, 1, 1, n});
  const SequenceRows rows = SequenceRows::One(1, 0, 0);
  ThreadPool pool(1);
  KvAppend(pool, {rows.view(), in.data(), in.data(), cache.view()});
  for (int64_t i = 0; i < n; ++i) {
    const float got = cache.Key(0, 0, 0, i);
    const float expected = want[static_cast<size_t>(i)];
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got));
    } else {
      EXPECT_EQ(got, expected) << i;
      EXPECT_EQ(std::signbit(got), std::signbit(expected)) << i;
    }
  }
}

TEST(KvAppendTest, NoLiveRowWritesNothing) {
  Random random(1);
  PagedCache cache(random, {DType::kBF16, 1, 4, 2, 1, 8});
  const std::vector<unsigned char> before = cache.k_bytes();
  ThreadPool pool(2);
  const SequenceRows rows = SequenceRows::One(0, 0, 0);
  KvAppend(pool, {rows.view(), nullptr, nullptr, cache.view()});
  EXPECT_EQ(cache.k_bytes(), before);
  EXPECT_EQ(cache.v_bytes(), before);
}

}  // namespace
}  // namespace signet::backend::cpu
