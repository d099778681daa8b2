#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/cpu/kernel_testing.h"
#include "backend/cpu/ops.h"

namespace signet::backend::cpu {
namespace {

using tensor::DType;
using namespace testing;  // NOLINT(google-build-using-namespace)

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

std::vector<float> Project(int threads, const std::vector<float>& x,
                           int64_t live, int64_t capacity,
                           const StoredMatrix& matrix) {
  ThreadPool pool(threads);
  const LiveRows rows(live, capacity);
  const WeightView weight = matrix.view();
  Guarded<float> out(capacity * weight.rows);
  Projection(pool, {.rows = rows.view(),
                    .x = {x.data()},
                    .weight = weight,
                    .out = out.data()});
  EXPECT_TRUE(out.CanariesIntact());
  for (int64_t i = live * weight.rows; i < out.size(); ++i) {
    EXPECT_TRUE(out.IsPoison(i)) << "a row past the live ones was written";
  }
  std::vector<float> values = out.Values();
  values.resize(static_cast<size_t>(live * weight.rows));
  return values;
}

TEST(ProjectionTest, GivesTheDefinedBitsForLiveRows) {
  Random random(11);
  for (DType dtype : kDTypes) {
    for (int64_t cols : {1, 7, 22, 44, 96, 2048}) {
      for (int64_t outputs : {1, 3, 17, 300}) {
        const StoredMatrix matrix(random, dtype, outputs, cols);
        for (int64_t live : {1, 2, 5, 33, 129}) {
          if (live * cols * outputs > 10'000'000) continue;
          // Rows past the live ones are shorter than promised: never read.
          const std::vector<float> x = RandomFloats(random, live * cols);
          const std::vector<float> got = Project(2, x, live, live + 3, matrix);
          for (int64_t m = 0; m < live; ++m) {
            for (int64_t n = 0; n < outputs; ++n) {
              const float* in = x.data() + m * cols;
              const float value = got[static_cast<size_t>(m * outputs + n)];
              ASSERT_EQ(value, DefinedDot(in, matrix.row(n), cols));
              const ExactDot exact(in, matrix.row(n), cols);
              ASSERT_LE(std::abs(value - exact.value), exact.Bound(cols));
            }
          }
        }
      }
    }
  }
}

TEST(ProjectionTest, ARowIsTheSameInEveryBatchAndThreadCount) {
  Random random(12);
  const int64_t cols = 200;
  const int64_t outputs = 131;
  const StoredMatrix matrix(random, DType::kBF16, outputs, cols);
  const std::vector<float> x = RandomFloats(random, 129 * cols);
  const std::vector<float> want = Project(1, x, 129, 129, matrix);
  for (int threads : {1, 2, 3}) {
    for (int64_t batch : {1, 2, 3, 4, 5, 8, 33, 128, 129}) {
      const std::vector<float> got = Project(threads, x, batch, 129, matrix);
      EXPECT_TRUE(SameBits(got.data(), want.data(), batch * outputs))
          << batch << " rows, " << threads << " threads";
    }
  }
}

TEST(ProjectionTest, NoLiveRowsWriteNothing) {
  Random random(13);
  const StoredMatrix matrix(random, DType::kF16, 5, 9);
  EXPECT_TRUE(Project(2, {}, 0, 4, matrix).empty());
}

TEST(LogitsTest, LastIsTheLastLiveRowOfAll) {
  Random random(14);
  ThreadPool pool(2);
  const int64_t vocab = 77;
  const int64_t cols = 44;
  const int64_t capacity = 6;
  const StoredMatrix matrix(random, DType::kBF16, vocab, cols);
  const std::vector<float> x = RandomFloats(random, capacity * cols);
  for (int64_t live : {1, 4, 6}) {
    const LiveRows rows(live, capacity);
    Guarded<float> all(capacity * vocab);
    Guarded<float> last(vocab);
    LogitsArgs args = {.rows = rows.view(),
                       .which = LogitRows::kAll,
                       .x = x.data(),
                       .weight = matrix.view(),
                       .out = all.data()};
    Logits(pool, args);
    args.which = LogitRows::kLast;
    args.out = last.data();
    Logits(pool, args);
    EXPECT_TRUE(SameBits(last.data(), all.data() + (live - 1) * vocab, vocab));
    EXPECT_EQ(all[0], DefinedDot(x.data(), matrix.row(0), cols));
    EXPECT_TRUE(live == capacity || all.IsPoison(live * vocab));
    EXPECT_TRUE(all.CanariesIntact() && last.CanariesIntact());
  }
}

TEST(LogitsTest, NoLiveRowsWriteNothing) {
  Random random(15);
  ThreadPool pool(1);
  const StoredMatrix matrix(random, DType::kBF16, 3, 8);
  const LiveRows rows(0, 2);
  Guarded<float> out(3);
  Logits(pool, {.rows = rows.view(),
                .which = LogitRows::kLast,
                .weight = matrix.view(),
                .out = out.data()});
  EXPECT_TRUE(out.IsPoison(0));
}

TEST(EmbedTest, CopiesTheRowsOfLiveIds) {
  Random random(16);
  ThreadPool pool(2);
  for (int64_t target : OnTarget::All()) {
    const OnTarget on(target);
    for (DType dtype : kDTypes) {
      for (int64_t cols : {1, 7, 16, 33, 96}) {
        const StoredMatrix table(random, dtype, 9, cols);
        const std::vector<int32_t> ids = {8, 0, 3, 3, 1000};
        const LiveRows rows(4, 5);
        Guarded<float> out(5 * cols);
        Embed(pool, {.rows = rows.view(),
                     .ids = ids.data(),
                     .table = table.view(),
                     .out = out.data()});
        for (int64_t t = 0; t < 4; ++t) {
          EXPECT_TRUE(SameBits(out.data() + t * cols,
                               table.row(ids[static_cast<size_t>(t)]), cols));
        }
        EXPECT_TRUE(out.IsPoison(4 * cols) && out.CanariesIntact());
      }
    }
  }
}

}  // namespace
}  // namespace signet::backend::cpu
