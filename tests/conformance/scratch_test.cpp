#include <gtest/gtest.h>

#include "backend/gpu/gpu_kernels.h"
#include "engine/gpu_room.h"
#include "plan/memory_plan.h"

namespace signet::backend::gpu {
namespace {

// Else a plan would be admitted that the device has no memory for.
TEST(GpuScratch, P4_ThatOfBothLanesIsCounted) {
  const Bytes taken = Bytes(GpuKernels::kScratchBytes) * 2;
  EXPECT_EQ(taken, kKernelScratch + Bytes(uint64_t{64} << 20));
  EXPECT_LT(taken, plan::kDriverAllowance + kKernelScratch);
}

}  // namespace
}  // namespace signet::backend::gpu
