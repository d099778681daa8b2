// The chat on a terminal.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "e2e/terminal.h"
#include "e2e/tiny_checkpoint.h"

namespace signet::testing {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> ChatOf(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"run", ChatCheckpoint().string(),
                                        "--temp", "0", "--ignore-eos"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// Tokens, as a byte is one: `<|im_start|>user\nhi<|im_end|>\n`, the answer
// without what was thought, `<|im_start|>assistant\n<think>\n`.
constexpr int kUserTurn = 10;
constexpr int kAnswerTurn = 13;
constexpr int kAnswerBegin = 13;

std::string Positions(int used) {
  return ", " + std::to_string(used) + " of 4096 positions\r\n";
}

TEST(Chat, KeepsTheConversation) {
  Terminal terminal(ChatOf({"-n", "4"}));
  terminal.Until("> ");
  terminal.Type("hi\n");
  terminal.Until(Positions(kUserTurn + kAnswerBegin + 4));
  terminal.Until("> ");
  terminal.Type("ho\n");
  terminal.Until(Positions(2 * kUserTurn + kAnswerTurn + kAnswerBegin + 4));
  terminal.Until("> ");
  terminal.Type(Terminal::kCtrlD);
  EXPECT_EQ(terminal.Wait(), 0);
}

// Without a thought the whole text is the answer, and stays.
TEST(Chat, NoThinkKeepsTheAnswer) {
  constexpr int kBegin = kAnswerBegin + 4;  // \n</think>\n\n besides
  // Drawn far from the likeliest token, which is a line's end here.
  Terminal terminal({"run", ChatCheckpoint().string(), "--temp", "9", "--seed",
                     "7", "--ignore-eos", "-n", "4", "--no-think"});
  terminal.Until("> ");
  terminal.Type("hi\n");
  terminal.Until(Positions(kUserTurn + kBegin + 4));
  terminal.Until("> ");
  terminal.Type("ho\n");
  terminal.Until(" ms, ");
  const int used = std::stoi(terminal.Until(" of 4096 positions"));
  EXPECT_GT(used, 2 * kUserTurn + kAnswerTurn + kBegin + 4);
}

TEST(Chat, ASystemMessageStandsFirst) {
  Terminal terminal(ChatOf({"-n", "4", "--system", "be"}));
  terminal.Until("> ");
  terminal.Type("\n  \nhi\n");
  terminal.Until(Positions(12 + kUserTurn + kAnswerBegin + 4));
}

TEST(Chat, CtrlCEndsTheAnswerAndAnotherTheProgram) {
  Terminal terminal(ChatOf({"--ctx", "250000"}));
  for (int turn = 0; turn < 2; ++turn) {
    terminal.Until("> ");
    terminal.Type("hi\n");
    terminal.Until("\033[2m");
    terminal.Type(Terminal::kCtrlC);
    terminal.Until("\033[0m\r\n");
    terminal.Until(", interrupted, ");
  }
  terminal.Until("> ");
  terminal.Type(Terminal::kCtrlC);
  EXPECT_EQ(terminal.Wait(), 130);
}

TEST(Chat, AfterAnInterruptTheEndOfTheInputIsNoError) {
  Terminal terminal(ChatOf({"--ctx", "250000"}));
  terminal.Until("> ");
  terminal.Type("hi\n");
  terminal.Until("\033[2m");
  terminal.Type(Terminal::kCtrlC);
  terminal.Until("> ");
  terminal.Type(Terminal::kCtrlD);
  EXPECT_EQ(terminal.Wait(), 0);
}

TEST(Chat, SaysThatTheContextIsFull) {
  Terminal terminal(ChatOf({"--ctx", "30"}));
  terminal.Until("> ");
  terminal.Type("hi\n");
  terminal.Until("the context is full");
  terminal.Until("> ");
  terminal.Type("hi\n");
  terminal.Until("the conversation no longer fits the context");
  terminal.Until("positions: 30\r\n");
  terminal.Until("> ");
  terminal.Type(Terminal::kCtrlD);
  EXPECT_EQ(terminal.Wait(), 0);
}

TEST(Chat, ALineThatIsNotUtf8IsLeftOut) {
  Terminal terminal(ChatOf({"-n", "4"}));
  terminal.Until("> ");
  terminal.Type("\xff\n");
  terminal.Until("request_invalid: the text is not UTF-8");
  terminal.Until("> ");
  terminal.Type("hi\n");
  terminal.Until(Positions(kUserTurn + kAnswerBegin + 4));
}

TEST(Chat, NeedsAChatTemplate) {
  Terminal terminal({"run", TinyCheckpoint().string()});
  terminal.Until("request_invalid: the checkpoint has no chat template");
  terminal.Until("-p TEXT continues a text");
  EXPECT_EQ(terminal.Wait(), 3);
}

TEST(Chat, ReadsATerminalOnly) {
  const Outcome outcome = Signet(ChatOf({}));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("a terminal as standard input"));
  for (const char* flag : {"--json", "--raw"}) {
    Terminal terminal(ChatOf({flag}));
    terminal.Until(std::string(flag) + " needs -p TEXT");
    EXPECT_EQ(terminal.Wait(), 2) << flag;
  }
}

}  // namespace
}  // namespace signet::testing
