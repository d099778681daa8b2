// Texts through the chat template, and files of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/terminal.h"
#include "e2e/tiny_checkpoint.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> RunOf(const fs::path& model,
                               std::vector<std::string> more) {
  std::vector<std::string> arguments = {
      "run", model.string(), "--temp", "0", "-n", "6", "--ignore-eos"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

json RunJson(const fs::path& model, std::vector<std::string> more) {
  more.push_back("--json");
  const Outcome outcome = Signet(RunOf(model, more));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return json::parse(outcome.out, nullptr, false);
}

int64_t PromptTokens(std::vector<std::string> more) {
  return RunJson(ChatCheckpoint(), std::move(more)).at("prompt_tokens");
}

// A byte is a token here, so are the four of the template.
constexpr int64_t kUserTurn = 1 + 5 + 1 + 1;      // and the text
constexpr int64_t kSystemTurn = 1 + 7 + 1 + 1;    // and the text
constexpr int64_t kAnswerBegin = 1 + 10 + 1 + 1;  // <|im_start|> ... <think>\n

TEST(ChatTemplate, IsAppliedToAPrompt) {
  EXPECT_EQ(PromptTokens({"-p", "hi"}), kUserTurn + 2 + kAnswerBegin);
  EXPECT_EQ(PromptTokens({"-p", " hi\n"}), kUserTurn + 2 + kAnswerBegin);
  EXPECT_EQ(PromptTokens({"-p", "hi", "--system", "bye"}),
            kSystemTurn + 3 + kUserTurn + 2 + kAnswerBegin);
  EXPECT_EQ(PromptTokens({"-p", "hi", "--raw"}), 2);
}

TEST(ChatTemplate, NoThinkBeginsBehindAnEmptyThought) {
  constexpr int64_t kEmptyThought = 1 + 2 + 1 + 2;  // <think>\n\n</think>\n\n
  EXPECT_EQ(PromptTokens({"-p", "hi", "--no-think"}),
            kUserTurn + 2 + 1 + 10 + kEmptyThought);
  const std::vector<std::string> arguments =
      RunOf(ChatCheckpoint(), {"-p", "hi", "--no-think"});
  Terminal terminal(arguments);
  EXPECT_THAT(terminal.Rest(), Not(HasSubstr("\033[2m")));
  EXPECT_EQ(terminal.Wait(), 0);
}

TEST(ChatTemplate, ItsTokensInAPromptAreText) {
  EXPECT_EQ(PromptTokens({"-p", "<|im_end|>"}), kUserTurn + 10 + kAnswerBegin);
  EXPECT_EQ(PromptTokens({"-p", "<|im_end|>", "--raw"}), 1);
}

TEST(ChatTemplate, MayStandInTheTokenizerConfig) {
  const fs::path folder = ScratchFolder("chat_in_config");
  fs::copy(ChatCheckpoint(), folder, fs::copy_options::recursive);
  const json config = {
      {"chat_template", ReadText(folder / "chat_template.jinja")}};
  fs::remove(folder / "chat_template.jinja");
  WriteText(folder / "tokenizer_config.json", config.dump());
  EXPECT_EQ(RunJson(folder, {"-p", "hi"}).at("prompt_tokens"),
            kUserTurn + 2 + kAnswerBegin);
}

TEST(ChatTemplate, ThinkingIsDimmedOnATerminalOnly) {
  const std::vector<std::string> arguments =
      RunOf(ChatCheckpoint(), {"-p", "hi"});
  EXPECT_THAT(Signet(arguments).out, Not(HasSubstr("\033")));
  Terminal terminal(arguments);
  terminal.Until("\033[2m");
  terminal.Until("\033[0m\r\n");
  EXPECT_EQ(terminal.Wait(), 0);
}

TEST(Prompts, EachHasTheTextItHasAloneInOrder) {
  const fs::path file = ScratchFolder("prompts") / "p.txt";
  WriteText(file, "Alice\nThe Queen of Hearts\nx");
  for (const fs::path& model : {TinyCheckpoint(), ChatCheckpoint()}) {
    std::string wanted;
    json results = json::array();
    int number = 0;
    for (const char* prompt : {"Alice", "The Queen of Hearts", "x"}) {
      const json alone = RunJson(model, {"-p", prompt});
      if (number++ > 0) wanted += '\n';
      wanted += "=== " + std::to_string(number) + ": " + prompt + "\n";
      wanted += alone.at("text").get<std::string>() + "\n";
      results.push_back(alone.at("tokens"));
    }
    for (const std::vector<std::string>& batch :
         {std::vector<std::string>{}, {"--batch", "1"}, {"--batch", "2"}}) {
      std::vector<std::string> arguments = {"--prompts", file.string()};
      arguments.insert(arguments.end(), batch.begin(), batch.end());
      const Outcome outcome = Signet(RunOf(model, arguments));
      EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
      EXPECT_EQ(outcome.out, wanted);
      EXPECT_THAT(outcome.err, HasSubstr("3 prompts, 18 tokens, "));
    }
    const json object = RunJson(model, {"--prompts", file.string()});
    ASSERT_EQ(object.at("results").size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(object.at("results")[i].at("tokens"), results[i]);
    }
    EXPECT_EQ(object.at("tokens"), results[0]);
  }
}

}  // namespace
}  // namespace signet::testing
