#include "backend/gpu_ceilings.h"

#include <gtest/gtest.h>

#include <variant>

namespace signet::backend {
namespace {

TEST(NullGpu, HasNoCeilings) {
  const Result<GpuCeilings> ceilings = MeasureGpuCeilings("GPU-0");
  ASSERT_FALSE(ceilings.has_value());
  EXPECT_EQ(std::get<Failure>(ceilings.error()).kind, FailureKind::kDevice);
}

}  // namespace
}  // namespace signet::backend
