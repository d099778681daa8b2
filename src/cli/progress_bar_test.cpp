#include "cli/progress_bar.h"

#include <gtest/gtest.h>

namespace signet::cli {
namespace {

TEST(ProgressBar, SaysHowMuchOfALoadIsDone) {
  EXPECT_EQ(BarText(LoadProgress{.done_bytes = 1'500'000'000,
                                 .total_bytes = 6'000'000'000}),
            "loading [#######.......................]  25% 1.5 of 6.0 GB");
  EXPECT_EQ(BarText(LoadProgress{.done_bytes = 0, .total_bytes = 0}),
            "loading [..............................]   0% 0.0 of 0.0 GB");
}

TEST(ProgressBar, SaysHowMuchOfAPromptIsRead) {
  EXPECT_EQ(BarText(PromptEvent{.request = 0, .read = 16384, .tokens = 32768}),
            "reading [###############...............]  50% 16384 of 32768 "
            "tokens");
}

}  // namespace
}  // namespace signet::cli
