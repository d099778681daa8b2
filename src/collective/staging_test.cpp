#include "collective/staging.h"

#include <gtest/gtest.h>

#include "collective/mesh_testing.h"
#include "collective/transport.h"

namespace signet::collective {
namespace {

using topology::Axis;

AxisSizes Sizes(Axis axis, MeetingSizes of_axis) {
  AxisSizes sizes;
  sizes[static_cast<size_t>(axis)] = of_axis;
  return sizes;
}

TEST(Staging, P4_HoldsTheLargestMeetingOfEveryGroup) {
  // Two members take the whole partial of each other, however long.
  EXPECT_EQ(GroupStaging(2, {.reduce_elements = 32000}), Bytes(2 * 4 * 32000));
  // More take slices of a long one, and of the longest short one the whole.
  const int64_t whole = LargestOneShot(4, 1 << 20);
  EXPECT_EQ(GroupStaging(4, {.reduce_elements = whole + 1}),
            Bytes(static_cast<uint64_t>(4 * 4 * whole)));
  EXPECT_GE(GroupStaging(4, {.reduce_elements = 1 << 20}), Bytes(4 << 20));
  EXPECT_EQ(GroupStaging(4, {.reduce_elements = 1, .gather_bytes = 6400}),
            Bytes(6400));
  EXPECT_EQ(GroupStaging(2, {.gather_bytes = 1}), Bytes(kStagingAlignment));
  EXPECT_EQ(GroupStaging(2, {}), Bytes());
}

TEST(Staging, P4_OnlyAxesWithOthersHoldAny) {
  const MeetingSizes meetings = {.reduce_elements = 1024, .gather_bytes = 64};
  const Bytes one = GroupStaging(2, meetings);
  EXPECT_EQ(RankStaging(MakeMesh("ep=2"), Sizes(Axis::kEp, meetings)), one);
  EXPECT_EQ(RankStaging(MakeMesh("ep=2"), Sizes(Axis::kTp, meetings)), Bytes());
  AxisSizes every;
  every.fill(meetings);
  EXPECT_EQ(RankStaging(MakeMesh("single"), every), Bytes());
  EXPECT_EQ(RankStaging(MakeMesh("pp=2,ep=2"), every), one * 2);
}

}  // namespace
}  // namespace signet::collective
