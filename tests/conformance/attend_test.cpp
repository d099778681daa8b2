// Fused attention leaves the bits of its three steps in its output and in the
// whole cache.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/kernel_bench.h"
#include "tests/conformance/attention_problem.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using backend::testing::KernelBench;
using tensor::DType;

class AttendTest : public GpuKernelTest {};

struct Case {
  int64_t heads;
  int64_t kv_heads;
  int64_t dim;
  int64_t rotary_dim;
  int64_t page_size;
  DType dtype;
};
constexpr Case kCases[] = {
    {16, 2, 256, 64, 64, DType::kBF16}, {24, 4, 256, 64, 64, DType::kBF16},
    {5, 1, 256, 256, 32, DType::kBF16}, {9, 1, 128, 128, 16, DType::kBF16},
    {3, 3, 64, 20, 48, DType::kBF16},   {4, 2, 64, 0, 16, DType::kBF16},
    {4, 2, 64, 32, 5, DType::kBF16},    {4, 2, 32, 16, 64, DType::kBF16},
    {16, 2, 256, 64, 64, DType::kF32},  {4, 2, 8, 4, 16, DType::kF32}};

class Problem {
 public:
  Problem(Random& random, const Case& sizes, TestRows& rows, int64_t context,
          int64_t slots)
      : sizes_(sizes),
        rows_(rows),
        cache_(random, {sizes.dtype, slots, context, sizes.page_size,
                        sizes.kv_heads, sizes.dim}),
        q_gate_(RandomFloats(random,
                             rows.capacity() * sizes.heads * 2 * sizes.dim)),
        k_(RandomFloats(random, rows.capacity() * cache_.width())),
        v_(RandomFloats(random, rows.capacity() * cache_.width())),
        inv_freq_(InvFreq(sizes.rotary_dim)),
        q_norm_(random, DType::kBF16, sizes.dim),
        k_norm_(random, DType::kF32, sizes.dim) {
    // Everything before the rows of the call.
    const Rows host = rows.host();
    std::vector<int32_t> known(static_cast<size_t>(slots), 1 << 30);
    for (int64_t i = 0; i < rows.live(); ++i) {
      int32_t& first = known[static_cast<size_t>(host.slot[i])];
      first = std::min(first, host.position[i]);
    }
    for (int64_t slot = 0; slot < slots; ++slot) {
      const int32_t end = known[static_cast<size_t>(slot)];
      if (end < 1 << 30) cache_.Put(random, slot, 0, end);
    }
  }

  struct Result {
    std::vector<float> out;
    std::vector<unsigned char> k;
    std::vector<unsigned char> v;
  };

  Result Run(GpuKernels& kernels, RowForm form, bool fused) {
    cache_.Upload();
    DeviceArray<float> q_out(rows_.capacity() * sizes_.heads * sizes_.dim);
    DeviceArray<float> k_out(rows_.capacity() * cache_.width());
    DeviceArray<float> out(rows_.capacity() * sizes_.heads * sizes_.dim);
    AttendArgs args;
    args.rope = {.rows = rows_.device(),
                 .heads = sizes_.heads,
                 .kv_heads = sizes_.kv_heads,
                 .head_dim = sizes_.dim,
                 .rotary_dim = sizes_.rotary_dim,
                 .inv_freq = inv_freq_.data(),
                 .q_gate = q_gate_.data(),
                 .k = k_.data(),
                 .q_norm = q_norm_.device(),
                 .k_norm = k_norm_.device(),
                 .q_out = q_out.data(),
                 .k_out = k_out.data()};
    args.append = {.rows = rows_.device(),
                   .k = k_out.data(),
                   .v = v_.data(),
                   .cache = cache_.device()};
    args.attention = {.rows = rows_.device(),
                      .form = form,
                      .heads = sizes_.heads,
                      .scale = 1 / std::sqrt(static_cast<float>(sizes_.dim)),
                      .q = q_out.data(),
                      .q_gate = q_gate_.data(),
                      .cache = cache_.device(),
                      .out = out.data()};
    if (fused) {
      kernels.Attend(KernelBench::Launch(), args);
    } else {
      kernels.QkNormRope(KernelBench::Launch(), args.rope);
      kernels.KvAppend(KernelBench::Launch(), args.append);
      kernels.Attention(KernelBench::Launch(), args.attention);
    }
    EXPECT_EQ(kernels.TakeStatus(), kOk);
    EXPECT_EQ(cudaDeviceSynchronize(), kOk);
    EXPECT_TRUE(cache_.CanariesIntact());
    EXPECT_TRUE(q_out.CanariesIntact() && k_out.CanariesIntact());
    return {Written(out, rows_.live() * sizes_.heads * sizes_.dim),
            cache_.DeviceK(), cache_.DeviceV()};
  }

 private:
  static std::vector<float> InvFreq(int64_t rotary_dim) {
    std::vector<float> values = {1.0f};
    for (int64_t i = 1; i < rotary_dim / 2; ++i) {
      values.push_back(values.back() * 0.7f);
    }
    return values;
  }

  Case sizes_;
  TestRows& rows_;
  PagedCache cache_;
  DeviceArray<float> q_gate_;
  DeviceArray<float> k_;
  DeviceArray<float> v_;
  DeviceArray<float> inv_freq_;
  StoredVector q_norm_;
  StoredVector k_norm_;
};

void ExpectFusedIsUnfused(GpuKernels& kernels, Problem& problem, RowForm form) {
  const Problem::Result steps = problem.Run(kernels, form, false);
  const Problem::Result fused = problem.Run(kernels, form, true);
  EXPECT_TRUE(SameBits(fused.out, steps.out));
  EXPECT_EQ(fused.k, steps.k);
  EXPECT_EQ(fused.v, steps.v);
  EXPECT_TRUE(SameBits(problem.Run(kernels, form, true).out, fused.out));
}

TEST_F(AttendTest, LeavesTheBitsOfItsSteps) {
  Random random(1);
  for (const Case& sizes : kCases) {
    SCOPED_TRACE("seed 1, heads " + std::to_string(sizes.heads) + " dim " +
                 std::to_string(sizes.dim));
    TestRows rows({4, 0, 2, 5, 1}, {0, 15, 64, 129, 447}, 6);
    Problem problem(random, sizes, rows, 450, 6);
    ExpectFusedIsUnfused(kernels(), problem, RowForm::kSequenceEach);
  }
}

// One row: many splits. The new token is in turn first and last of a split.
TEST_F(AttendTest, LeavesTheBitsOfItsStepsInALongRow) {
  Random random(2);
  for (const Case& sizes : {kCases[0], kCases[4]}) {
    for (const int32_t position : {0, 47, 1023, 1024, 1100}) {
      SCOPED_TRACE("seed 2, position " + std::to_string(position));
      TestRows rows({1}, {position}, 1);
      Problem problem(random, sizes, rows, 1500, 2);
      ExpectFusedIsUnfused(kernels(), problem, RowForm::kSequenceEach);
    }
  }
}

TEST_F(AttendTest, LeavesTheBitsOfItsStepsForRowsOfOneSequence) {
  Random random(3);
  for (const int64_t capacity : {8, 40}) {
    TestRows rows = TestRows::One(7, 1, 70, capacity);
    Problem problem(random, kCases[0], rows, 128, 2);
    ExpectFusedIsUnfused(kernels(), problem, RowForm::kOneSequence);
  }
}

TEST_F(AttendTest, NoLiveRowWritesNothing) {
  Random random(4);
  TestRows rows({}, {}, 3);
  Problem problem(random, kCases[0], rows, 128, 2);
  ExpectFusedIsUnfused(kernels(), problem, RowForm::kSequenceEach);
}

}  // namespace
}  // namespace signet::backend::gpu
