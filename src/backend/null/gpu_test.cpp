#include <gtest/gtest.h>

#include "backend/gpu_devices.h"

namespace signet::backend {
namespace {

TEST(GpuDevices, AreNoneWithoutAToolchain) {
  EXPECT_TRUE(GpuDevices().empty());
  EXPECT_TRUE(GpuLinks().empty());
  EXPECT_EQ(GpuAbsence(), "this build has no GPU backend");
}

}  // namespace
}  // namespace signet::backend
