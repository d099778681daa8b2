#include "cli/thinking_style.h"

#include <gtest/gtest.h>

namespace signet::cli {
namespace {

TEST(ThinkingStyle, DimsUpToTheEndOfTheThought) {
  ThinkingStyle style(/*on=*/true, /*inside=*/true);
  EXPECT_EQ(style.Push("so"), "\033[2mso");
  EXPECT_TRUE(style.is_dim());
  EXPECT_EQ(style.Push("</think>\n\nYes"), "</think>\033[0m\n\nYes");
  EXPECT_FALSE(style.is_dim());
  EXPECT_EQ(style.Finish(), "");
}

TEST(ThinkingStyle, FindsATagInPieces) {
  ThinkingStyle style(true, false);
  EXPECT_EQ(style.Push("a<<th"), "a<<th");
  EXPECT_EQ(style.Push("ink>b<"), "ink>\033[2mb<");
  EXPECT_EQ(style.Push("</think>c"), "</think>\033[0mc");
}

TEST(ThinkingStyle, EndsWithinAThought) {
  ThinkingStyle style(true, true);
  style.Push("so");
  EXPECT_EQ(style.Finish(), "\033[0m");
  EXPECT_EQ(style.Finish(), "");
}

TEST(ThinkingStyle, OffItPassesTheTextAsItIs) {
  ThinkingStyle style(false, true);
  EXPECT_EQ(style.Push("a</think>b<think>"), "a</think>b<think>");
  EXPECT_EQ(style.Finish(), "");
}

}  // namespace
}  // namespace signet::cli
