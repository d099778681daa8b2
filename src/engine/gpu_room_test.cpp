#include "engine/gpu_room.h"

#include <gtest/gtest.h>

namespace signet {
namespace {

TEST(GpuRoom, P4_WhatKernelsTakeIsNotThere) {
  const Bytes scratch = kKernelScratch;
  EXPECT_EQ(RoomOnGpu(scratch + Bytes(7)), Bytes(7));
  EXPECT_EQ(RoomOnGpu(scratch), Bytes(0));
  EXPECT_EQ(RoomOnGpu(scratch - Bytes(1)), Bytes(0));
  EXPECT_EQ(RoomOnGpu(Bytes(0)), Bytes(0));
}

}  // namespace
}  // namespace signet
