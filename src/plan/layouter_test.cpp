#include "plan/layouter.h"

#include <gtest/gtest.h>

#include <random>

namespace signet::plan {
namespace {

bool LivesOverlap(const LayoutRequest& a, const LayoutRequest& b) {
  return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

TEST(Layouter, P4_NoTwoLiveBuffersOverlapWhateverTheRequests) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<LayoutRequest> requests(1 + random() % 60);
    for (LayoutRequest& request : requests) {
      request.size = Bytes(1 + random() % 5000);
      request.alignment = uint64_t{1} << (random() % 8);
      request.first_step = static_cast<int64_t>(random() % 40);
      request.last_step =
          request.first_step + static_cast<int64_t>(random() % 10);
    }
    const Layout layout = LayOut(requests);
    for (size_t a = 0; a < requests.size(); ++a) {
      EXPECT_EQ(layout.offsets[a] % requests[a].alignment, 0u);
      EXPECT_LE(Bytes(layout.offsets[a]) + requests[a].size, layout.total);
      for (size_t b = 0; b < a; ++b) {
        if (!LivesOverlap(requests[a], requests[b])) continue;
        const bool apart =
            layout.offsets[a] + requests[a].size.value() <= layout.offsets[b] ||
            layout.offsets[b] + requests[b].size.value() <= layout.offsets[a];
        EXPECT_TRUE(apart) << "round " << round;
      }
    }
  }
}

TEST(Layouter, ReusesWhatIsNoLongerLive) {
  const std::vector<LayoutRequest> chain = {
      {Bytes(100), 1, 0, 1}, {Bytes(100), 1, 1, 2}, {Bytes(100), 1, 2, 3}};
  EXPECT_EQ(LayOut(chain).total, Bytes(200));
}

TEST(Layouter, OverflowSticks) {
  const std::vector<LayoutRequest> huge = {
      {Bytes(uint64_t{1} << 63), 64, 0, 1},
      {Bytes(uint64_t{1} << 63), 64, 0, 1}};
  EXPECT_TRUE(LayOut(huge).total.overflowed());
}

}  // namespace
}  // namespace signet::plan
