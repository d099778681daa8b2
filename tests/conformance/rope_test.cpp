// Query and key norms and rotation on the GPU against the CPU's, which are
// tested against double precision. The orders of the sums of squares differ,
// all else is equal: 1e-6.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/cpu/cpu_kernels.h"
#include "backend/kernel_bench.h"
#include "tests/conformance/attention_problem.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using backend::testing::KernelBench;
using tensor::DType;

class RopeTest : public GpuKernelTest {};

struct Case {
  int64_t heads;
  int64_t kv_heads;
  int64_t dim;
  int64_t rotary_dim;
};
constexpr Case kCases[] = {{2, 1, 24, 10},   {4, 2, 32, 32},   {3, 3, 64, 0},
                           {2, 2, 128, 32},  {16, 2, 256, 64}, {24, 4, 256, 64},
                           {1, 1, 512, 512}, {40, 5, 17, 6},   {4, 2, 8, 4},
                           {25, 2, 510, 64}};

class Problem {
 public:
  Problem(Random& random, const Case& sizes, DType dtype, int64_t capacity)
      : sizes_(sizes),
        capacity_(capacity),
        q_gate_(RandomFloats(random, capacity * sizes.heads * 2 * sizes.dim)),
        k_(RandomFloats(random, capacity * sizes.kv_heads * sizes.dim)),
        q_norm_(random, dtype, sizes.dim),
        k_norm_(random, dtype, sizes.dim) {
    for (int64_t i = 0; i < sizes.rotary_dim / 2; ++i) {
      const double exponent =
          2.0 * static_cast<double>(i) / static_cast<double>(sizes.rotary_dim);
      inv_freq_.push_back(1.0f / static_cast<float>(std::pow(1e7, exponent)));
    }
    inv_freq_.resize(std::max<size_t>(inv_freq_.size(), 1));
  }

  // Query heads of all live rows, then key heads.
  std::vector<float> OnCpu(const TestRows& rows) {
    std::vector<float> q(q_gate_.size() / 2);
    std::vector<float> k(k_.size());
    cpu::ThreadPool pool(4);
    QkNormRopeArgs args = Sizes();
    args.rows = rows.host();
    args.inv_freq = inv_freq_.data();
    args.q_gate = q_gate_.data();
    args.k = k_.data();
    args.q_norm = q_norm_.host();
    args.k_norm = k_norm_.host();
    args.q_out = q.data();
    args.k_out = k.data();
    cpu::MakeCpuKernels(&pool)->QkNormRope(KernelBench::Launch(), args);
    q.resize(static_cast<size_t>(rows.live() * QueryWidth()));
    q.insert(q.end(), k.begin(), k.begin() + rows.live() * KeyWidth());
    return q;
  }
  std::vector<float> OnGpu(GpuKernels& kernels, TestRows& rows) {
    DeviceArray<float> q_gate(q_gate_);
    DeviceArray<float> k(k_);
    DeviceArray<float> inv_freq(inv_freq_);
    DeviceArray<float> q_out(capacity_ * QueryWidth());
    DeviceArray<float> k_out(capacity_ * KeyWidth());
    QkNormRopeArgs args = Sizes();
    args.rows = rows.device();
    args.inv_freq = inv_freq.data();
    args.q_gate = q_gate.data();
    args.k = k.data();
    args.q_norm = q_norm_.device();
    args.k_norm = k_norm_.device();
    args.q_out = q_out.data();
    args.k_out = k_out.data();
    kernels.QkNormRope(KernelBench::Launch(), args);
    EXPECT_EQ(kernels.TakeStatus(), kOk);
    EXPECT_EQ(cudaDeviceSynchronize(), kOk);
    std::vector<float> all = Written(q_out, rows.live() * QueryWidth());
    const std::vector<float> keys = Written(k_out, rows.live() * KeyWidth());
    all.insert(all.end(), keys.begin(), keys.end());
    return all;
  }

  int64_t QueryWidth() const { return sizes_.heads * sizes_.dim; }
  int64_t KeyWidth() const { return sizes_.kv_heads * sizes_.dim; }

 private:
  QkNormRopeArgs Sizes() const {
    QkNormRopeArgs args;
    args.heads = sizes_.heads;
    args.kv_heads = sizes_.kv_heads;
    args.head_dim = sizes_.dim;
    args.rotary_dim = sizes_.rotary_dim;
    return args;
  }

  Case sizes_;
  int64_t capacity_;
  std::vector<float> q_gate_;
  std::vector<float> k_;
  StoredVector q_norm_;
  StoredVector k_norm_;
  std::vector<float> inv_freq_;
};

TEST_F(RopeTest, AgreesWithTheCpuAtAnyPosition) {
  Random random(1);
  for (const Case& sizes : kCases) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const int32_t live : {0, 1, 5}) {
        SCOPED_TRACE("seed 1, heads " + std::to_string(sizes.heads) + ", dim " +
                     std::to_string(sizes.dim) + ", live " +
                     std::to_string(live));
        Problem problem(random, sizes, dtype, 6);
        TestRows rows = TestRows::One(live, 0, 262139 - 1000 * live, 6);
        const std::vector<float> got = problem.OnGpu(kernels(), rows);
        if (live == 0) continue;
        EXPECT_LE(
            RelativeError(got, std::span<const float>(problem.OnCpu(rows))),
            1e-6);
        EXPECT_TRUE(SameBits(got, problem.OnGpu(kernels(), rows)));
      }
    }
  }
}

TEST_F(RopeTest, ARowDoesNotDependOnItsNeighbours) {
  Random random(2);
  const Case sizes = {16, 2, 256, 64};
  Problem problem(random, sizes, DType::kBF16, 3);
  TestRows all({0, 1, 2}, {77, 5, 1000}, 3);
  TestRows alone({0}, {77}, 3);
  const std::vector<float> together = problem.OnGpu(kernels(), all);
  const std::vector<float> one = problem.OnGpu(kernels(), alone);
  const int64_t q = problem.QueryWidth();
  EXPECT_EQ(std::memcmp(one.data(), together.data(),
                        static_cast<size_t>(q) * sizeof(float)),
            0);
  EXPECT_EQ(
      std::memcmp(one.data() + q, together.data() + 3 * q,
                  static_cast<size_t>(problem.KeyWidth()) * sizeof(float)),
      0);
}

}  // namespace
}  // namespace signet::backend::gpu
