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

std::vector<float> InvFreq(int64_t rotary_dim) {
  std::vector<float> out;
  for (int64_t i = 0; i < rotary_dim / 2; ++i) {
    const double exponent =
        2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim);
    out.push_back(1.0f / static_cast<float>(std::pow(1e7, exponent)));
  }
  return out;
}

// One head in double: norm with zero-centred weights, then rotation.
void AddHead(const float* x, const float* weight, int64_t dim,
             int64_t rotary_dim, const std::vector<float>& inv_freq,
             int64_t position, std::vector<double>& want) {
  double sum = 0;
  for (int64_t i = 0; i < dim; ++i) sum += double{x[i]} * double{x[i]};
  const double inv = 1 / std::sqrt(sum / static_cast<double>(dim) + 1e-6);
  std::vector<double> y;
  for (int64_t i = 0; i < dim; ++i) {
    y.push_back(x[i] * inv * (1 + double{weight[i]}));
  }
  const int64_t half = rotary_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    // The angle is an f32 product by contract; its sine and cosine are exact.
    const float angle =
        static_cast<float>(position) * inv_freq[static_cast<size_t>(i)];
    const double c = std::cos(double{angle});
    const double s = std::sin(double{angle});
    const auto low = static_cast<size_t>(i);
    const auto high = static_cast<size_t>(i + half);
    const double a = y[low];
    const double b = y[high];
    y[low] = a * c - b * s;
    y[high] = b * c + a * s;
  }
  want.insert(want.end(), y.begin(), y.end());
}

struct Case {
  int64_t heads;
  int64_t kv_heads;
  int64_t dim;
  int64_t rotary_dim;
};
constexpr Case kCases[] = {{2, 1, 24, 10},  {4, 2, 32, 32},   {3, 3, 64, 0},
                           {2, 2, 128, 32}, {16, 2, 256, 64}, {1, 1, 512, 512}};

TEST(QkNormRopeTest, AgreesWithDoubleAtAnyPosition) {
  Random random(1);
  for (const auto [heads, kv_heads, dim, rotary_dim] : kCases) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const int64_t live : {0, 1, 2, 3, 65}) {
        for (const int64_t position : {0, 4095, 262143 - 65}) {
          const std::vector<float> inv_freq = InvFreq(rotary_dim);
          const StoredMatrix weights(random, dtype, 2, dim);
          const std::vector<float> q_gate =
              RandomFloats(random, live * heads * 2 * dim);
          const std::vector<float> k =
              RandomFloats(random, live * kv_heads * dim);
          const SequenceRows rows = SequenceRows::One(live, 1, position);
          const auto size = static_cast<int64_t>(tensor::SizeOf(dtype));
          const auto* data = static_cast<const char*>(weights.data());
          const std::vector<float> got = SameEverywhere([&](ThreadPool& pool) {
            Guarded<float> q_out(rows.capacity() * heads * dim);
            Guarded<float> k_out(rows.capacity() * kv_heads * dim);
            QkNormRope(pool, {.rows = rows.view(),
                              .heads = heads,
                              .kv_heads = kv_heads,
                              .head_dim = dim,
                              .rotary_dim = rotary_dim,
                              .inv_freq = inv_freq.data(),
                              .q_gate = q_gate.data(),
                              .k = k.data(),
                              .q_norm = {data, dtype, dim},
                              .k_norm = {data + dim * size, dtype, dim},
                              .eps = 1e-6f,
                              .q_out = q_out.data(),
                              .k_out = k_out.data()});
            std::vector<float> all = Written(q_out, live * heads * dim);
            const std::vector<float> keys =
                Written(k_out, live * kv_heads * dim);
            all.insert(all.end(), keys.begin(), keys.end());
            return all;
          });
          std::vector<double> want;
          for (int64_t i = 0; i < live * heads; ++i) {
            AddHead(q_gate.data() + i * 2 * dim, weights.row(0), dim,
                    rotary_dim, inv_freq, position + i / heads, want);
          }
          for (int64_t i = 0; i < live * kv_heads; ++i) {
            AddHead(k.data() + i * dim, weights.row(1), dim, rotary_dim,
                    inv_freq, position + i / kv_heads, want);
          }
          ASSERT_LT(WorstError(got, want), 1e-6) << dim << " " << position;
        }
      }
    }
  }
}

}  // namespace
}  // namespace signet::backend::cpu
