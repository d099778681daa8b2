#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/cpu/kernel_testing.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/sequence_testing.h"

namespace signet::backend::cpu {
namespace {

using tensor::DType;
using namespace testing;  // NOLINT(google-build-using-namespace)

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

VectorView AsVector(const StoredMatrix& matrix) {
  const WeightView view = matrix.view();
  return {.data = view.data, .dtype = view.dtype, .size = view.cols};
}

double InvRms(const float* x, int64_t width, double eps) {
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += double{x[i]} * double{x[i]};
  return 1 / std::sqrt(sum / static_cast<double>(width) + eps);
}

std::vector<float> RunNorm(ThreadPool& pool, const std::vector<float>& x,
                           int64_t live, int64_t width,
                           const StoredMatrix& weight, float offset) {
  const LiveRows rows(live, live + 3);
  Guarded<float> out((live + 3) * width);
  Norm(pool, {.rows = rows.view(),
              .x = x.data(),
              .weight = AsVector(weight),
              .offset = offset,
              .eps = 1e-6f,
              .width = width,
              .out = out.data()});
  return Written(out, live * width);
}

TEST(NormTest, AgreesWithDoubleAndWithEachRowAlone) {
  Random random(1);
  for (const DType dtype : kDTypes) {
    for (const int64_t width : {1, 7, 16, 24, 32, 100, 256, 2048}) {
      const StoredMatrix weight(random, dtype, 1, width);
      for (const int64_t live : {0, 1, 2, 3, 64, 65, 130}) {
        if (live * width > 40000) continue;
        const float offset = live % 2 == 0 ? 1.0f : 0.0f;
        const std::vector<float> x = RandomFloats(random, live * width);
        const std::vector<float> got = SameEverywhere([&](ThreadPool& pool) {
          return RunNorm(pool, x, live, width, weight, offset);
        });
        std::vector<double> want;
        for (int64_t row = 0; row < live; ++row) {
          const float* in = x.data() + row * width;
          const double inv = InvRms(in, width, 1e-6f);
          for (int64_t i = 0; i < width; ++i) {
            want.push_back(in[i] * inv * (offset + double{weight.row(0)[i]}));
          }
        }
        ASSERT_LT(WorstError(got, want), 1e-6) << width << " " << live;
        if (live < 2) continue;
        ThreadPool pool(1);
        const std::vector<float> last(x.end() - width, x.end());
        const std::vector<float> alone =
            RunNorm(pool, last, 1, width, weight, offset);
        ASSERT_TRUE(SameBits(alone.data(), &got[got.size() - width], width));
      }
    }
  }
}

TEST(NormTest, GatedAgreesWithDouble) {
  Random random(2);
  for (const DType dtype : kDTypes) {
    for (const int64_t dim : {24, 32, 64, 128, 256, 19}) {
      const StoredMatrix weight(random, dtype, 1, dim);
      for (const int64_t live : {0, 1, 3, 65}) {
        const int64_t heads = 3;
        std::vector<float> o = RandomFloats(random, live * heads * dim);
        std::vector<float> z = RandomFloats(random, live * heads * dim);
        for (float& value : z) value *= 20;
        const std::vector<float> got = SameEverywhere([&](ThreadPool& pool) {
          const LiveRows rows(live, live + 3);
          Guarded<float> out((live + 3) * heads * dim);
          GatedNorm(pool, {.rows = rows.view(),
                           .heads = heads,
                           .head_dim = dim,
                           .o = o.data(),
                           .z = z.data(),
                           .weight = AsVector(weight),
                           .eps = 1e-6f,
                           .out = out.data()});
          return Written(out, live * heads * dim);
        });
        std::vector<double> want;
        for (int64_t head = 0; head < live * heads; ++head) {
          const double inv = InvRms(o.data() + head * dim, dim, 1e-6f);
          for (int64_t i = 0; i < dim; ++i) {
            const auto at = static_cast<size_t>(head * dim + i);
            want.push_back(double{weight.row(0)[i]} * o[at] * inv *
                           SiluOf(z[at]));
          }
        }
        ASSERT_LT(WorstError(got, want), 1e-6) << dim << " " << live;
      }
    }
  }
}

}  // namespace
}  // namespace signet::backend::cpu
