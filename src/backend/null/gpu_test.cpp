#include <gtest/gtest.h>

#include "backend/gpu_devices.h"

namespace signet::backend {
namespace {

TEST(GpuDevices, AreNoneWithoutAToolchain) {
  EXPECT_TRUE(GpuDevices().empty());
}

}  // namespace
}  // namespace signet::backend
