// A long prompt on a terminal.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "e2e/terminal.h"

namespace signet::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// 3,501 tokens, which one thread reads for about a second: the bar waits for a
// tenth of one.
TEST(Progress, ABarUntilTheFirstToken) {
  std::string prompt;
  for (int i = 0; i < 500; ++i) prompt += "the cat sat on the mat and ";
  Terminal terminal({"run", "demo", "-p", prompt, "-n", "1", "--temp", "0",
                     "--ctx", "4096", "--threads", "1"});
  EXPECT_THAT(terminal.Until("\rreading ["), Not(HasSubstr("cat")));
  const std::string bar = terminal.Until(" of 3501 tokens\033[K");
  EXPECT_THAT(bar, HasSubstr("%"));
  // Behind the last bar its line is emptied at once, and has the text then.
  constexpr std::string_view kEnd = " of 3501 tokens\033[K";
  std::string rest = terminal.Rest();
  const size_t last = rest.rfind(kEnd);
  if (last != std::string::npos) rest.erase(0, last + kEnd.size());
  EXPECT_THAT(rest, StartsWith("\r\033[K"));
  EXPECT_THAT(rest, HasSubstr("\r\n1 token, "));
  EXPECT_EQ(terminal.Wait(), 0);
}

}  // namespace
}  // namespace signet::testing
