#include "backend/cpu/cpu_kernels.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cpu/kernel_testing.h"
#include "backend/kernel_bench.h"
#include "tensor/delta_chunk.h"

namespace signet::backend::cpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using backend::testing::KernelBench;

TEST(CpuKernelsTest, NamesTheInstructionSetItRunsOn) {
  for (int64_t target : OnTarget::All()) {
    const OnTarget on(target);
    EXPECT_STREQ(InstructionSet(), hwy::TargetName(target));
  }
  // The baseline is AVX2; nothing below it is compiled.
  for (int64_t target : OnTarget::All()) EXPECT_LE(target, HWY_AVX2);
}

TEST(CpuKernelsTest, LaunchesThroughTheInterface) {
  Random random(61);
  ThreadPool pool(2);
  const std::unique_ptr<Kernels> kernels = MakeCpuKernels(&pool);
  const StoredMatrix matrix(random, tensor::DType::kBF16, 3, 20);
  const std::vector<float> x = RandomFloats(random, 20);
  const LiveRows rows(1, 1);
  Guarded<float> out(3);
  kernels->Projection(KernelBench::Launch(), {.rows = rows.view(),
                                              .x = x.data(),
                                              .weight = matrix.view(),
                                              .out = out.data()});
  for (int64_t n = 0; n < 3; ++n) {
    EXPECT_EQ(out[n], DefinedDot(x.data(), matrix.row(n), 20));
  }
}

TEST(CpuKernelsTest, TheFormOfTheDeltaRuleIsTheCallers) {
  // One head of one dimension at position 0, where both forms agree; the
  // recurrent one is given no scratch.
  ThreadPool pool(1);
  const std::unique_ptr<Kernels> kernels = MakeCpuKernels(&pool);
  const int32_t live = 1;
  const int32_t zero = 0;
  const std::vector<float> qkv = {1.0f, 1.0f, 2.0f};
  const float logit = 0.0f;
  const float vector = 0.0f;
  std::vector<float> scratch(
      static_cast<size_t>(tensor::DeltaScratchFloats(1, 1)));
  for (DeltaForm form : {DeltaForm::kRecurrent, DeltaForm::kChunked}) {
    float state = 7.0f;
    float out = 0.0f;
    kernels->DeltaRule(
        KernelBench::Launch(),
        {.rows =
             {.live = &live, .slot = &zero, .position = &zero, .capacity = 1},
         .form = form,
         .key_heads = 1,
         .value_heads = 1,
         .key_dim = 1,
         .value_dim = 1,
         .qkv = qkv.data(),
         .b = &logit,
         .a = &logit,
         .a_log = {&vector, tensor::DType::kF32, 1},
         .dt_bias = {&vector, tensor::DType::kF32, 1},
         .state = &state,
         .scratch = form == DeltaForm::kChunked ? scratch.data() : nullptr,
         .out = &out});
    // beta = 1/2, so S = k d = 1/2 * 2, and o = S q.
    EXPECT_NEAR(out, 1.0f, 1e-5);
    EXPECT_NEAR(state, 1.0f, 1e-5);
  }
}

}  // namespace
}  // namespace signet::backend::cpu
