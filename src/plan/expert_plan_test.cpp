#include "plan/expert_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace signet::plan {
namespace {

// Rows the grouped order needs for the worst distribution of `slots` over
// `experts` experts: by trying them all.
int64_t WorstRows(int64_t slots, int64_t experts, int64_t tile) {
  int64_t worst = 0;
  const std::function<void(int64_t, int64_t, int64_t)> place =
      [&](int64_t expert, int64_t left, int64_t rows) {
        if (expert == experts) {
          if (left == 0) worst = std::max(worst, rows);
          return;
        }
        for (int64_t n = 0; n <= left; ++n) {
          place(expert + 1, left - n, rows + (n + tile - 1) / tile * tile);
        }
      };
  place(0, slots, 0);
  return worst;
}

TEST(ExpertPlan, P5_TheBoundIsReachedAndNeverPassed) {
  for (int64_t slots = 0; slots <= 12; ++slots) {
    for (int64_t experts = 1; experts <= 4; ++experts) {
      for (const int64_t tile : {1, 2, 3, 4, 5, 8}) {
        EXPECT_EQ(GroupedRowsBound(slots, experts, tile).value(),
                  static_cast<uint64_t>(WorstRows(slots, experts, tile)))
            << slots << " slots, " << experts << " experts, tile " << tile;
      }
    }
  }
}

TEST(ExpertPlan, P5_KnownCases) {
  EXPECT_EQ(GroupedRowsBound(16, 4, 4), Bytes(28));
  // A 512-token chunk of the flagship in tiles of 16.
  EXPECT_EQ(GroupedRowsBound(4096, 256, 16), Bytes(7936));
}

TEST(ExpertPlan, P5_OverflowSticks) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(GroupedRowsBound(most, most, most).overflowed());
}

TEST(ExpertPlan, P5_SlotsOfARankAreBoundedByItsExpertsWhenOwned) {
  ExpertView::Facts facts = {.layer = LayerId(0),
                             .rank = Rank(0),
                             .num_experts = 16,
                             .num_local = 2,
                             .top_k = 4,
                             .parallelism = Parallelism::kOwned,
                             .collective = ScheduleRow(0)};
  EXPECT_EQ(MaxSlots(facts, 10), 20);
  facts.parallelism = Parallelism::kSplit;
  EXPECT_EQ(MaxSlots(facts, 10), 40);
  facts.parallelism = Parallelism::kSingle;
  EXPECT_EQ(MaxSlots(facts, 10), 40);
}

TEST(ExpertPlan, N2_LanesAreThePowerOfTwoThatDividesTheExperts) {
  EXPECT_EQ(FoldLanes(256), 8);
  EXPECT_EQ(FoldLanes(16), 8);
  EXPECT_EQ(FoldLanes(12), 4);
  EXPECT_EQ(FoldLanes(6), 2);
  EXPECT_EQ(FoldLanes(7), 1);
}

}  // namespace
}  // namespace signet::plan
