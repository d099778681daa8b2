// What the binary does when nothing is wrong, and how a run ends early.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/tiny_checkpoint.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

Outcome RunTiny(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"run", TinyCheckpoint().string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Signet(arguments);
}

json RunJson(std::vector<std::string> more) {
  more.push_back("--json");
  const Outcome outcome = RunTiny(more);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  json object = json::parse(outcome.out, nullptr, false);
  EXPECT_TRUE(object.is_object()) << outcome.out;
  return object;
}

/// A run that would take much longer than the test.
Invocation Endless() {
  Invocation invocation;
  invocation.arguments = {"run",         TinyCheckpoint().string(),
                          "-p",          "a",
                          "-n",          "200000",
                          "--ctx",       "250000",
                          "--ignore-eos"};
  return invocation;
}

TEST(Run, PrintsTheTextAndTellsTheRestOnStderr) {
  const Outcome outcome = RunTiny({"-p", "Alice", "-n", "8", "--ignore-eos"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, EndsWith("\n"));
  EXPECT_THAT(outcome.err, HasSubstr("devices: cpu:0 (chosen)\n"));
  EXPECT_THAT(outcome.err, HasSubstr("8 tokens, "));
  EXPECT_THAT(outcome.err, HasSubstr(" tok/s, first token after "));
  EXPECT_THAT(outcome.err, Not(HasSubstr("loading")));
}

TEST(Run, JsonHoldsWhatTheTextSays) {
  const std::vector<std::string> arguments = {"-p", "Alice", "-n", "8",
                                              "--ignore-eos"};
  const json object = RunJson(arguments);
  EXPECT_EQ(object.at("tokens").size(), 8u);
  EXPECT_EQ(object.at("finish"), "length");
  EXPECT_EQ(object.at("devices"), json({"cpu:0"}));
  EXPECT_EQ(object.at("text").get<std::string>() + "\n",
            RunTiny(arguments).out);
}

TEST(Run, TellsTheDigestOfTheWeightsItRead) {
  const std::vector<std::string> arguments = {"-p", "a",         "-n",
                                              "1",  "--devices", "cpu"};
  EXPECT_EQ(RunJson(arguments).at("content"), nullptr);
  EXPECT_THAT(RunTiny(arguments).err, Not(HasSubstr("weights:")));
  std::vector<std::string> reads = arguments;
  reads.push_back("--verify-files");
  const std::string content = RunJson(reads).at("content");
  EXPECT_EQ(content.size(), 32u);
  EXPECT_THAT(RunTiny(reads).err,
              HasSubstr("weights: all finite, content " + content + "\n"));
}

TEST(Run, NamesDevicesOnlyWhenChosen) {
  const Outcome outcome = RunTiny({"-p", "a", "-n", "1", "--devices", "cpu"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, Not(HasSubstr("devices")));
}

TEST(Run, IdsNeedNoTokenizer) {
  const fs::path folder = CopyOfTinyCheckpoint("ids_only");
  fs::remove(folder / "tokenizer.json");
  fs::remove(folder / "tokenizer_config.json");
  const Outcome outcome = Signet(
      {"run", folder.string(), "--ids", "7,8,9", "-n", "3", "--ignore-eos"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, MatchesRegex("[0-9]+,[0-9]+,[0-9]+\n"));
}

TEST(Run, SaysThatTheContextIsFull) {
  const Outcome outcome =
      RunTiny({"--ids", "1,2,3", "--ctx", "8", "-n", "100", "--ignore-eos"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("the context of 8 positions is full"));
}

TEST(Run, EachSamplingFlagReplacesOnePart) {
  const std::vector<std::string> base = {"--ids", "1,2,3", "-n", "24",
                                         "--ignore-eos"};
  const auto tokens = [&](std::vector<std::string> more) {
    more.insert(more.end(), base.begin(), base.end());
    return RunJson(more).at("tokens");
  };
  const json greedy = tokens({"--temp", "0"});
  EXPECT_EQ(greedy, tokens({"--temp", "0", "--seed", "5"}));
  EXPECT_EQ(greedy, tokens({"--temp", "9", "--top-k", "1"}));
  const json drawn = tokens({"--temp", "9", "--seed", "5"});
  EXPECT_NE(greedy, drawn);
  EXPECT_EQ(drawn, tokens({"--temp", "9", "--seed", "5"}));
  EXPECT_NE(drawn, tokens({"--temp", "9", "--seed", "6"}));
}

TEST(Run, PromptMayLookLikeAFlagOrAList) {
  for (const char* prompt : {"-hello", "--json", "[a,b]", "a=b"}) {
    EXPECT_EQ(RunTiny({"-n", "1", "-p", prompt}).exit_code, 0) << prompt;
  }
}

TEST(Run, EndsBeforeTheFirstOfSeveralStopTexts) {
  const std::vector<std::string> arguments = {
      "-p", "Alice", "-n", "40", "--ignore-eos", "--temp", "9"};
  const std::string whole = RunJson(arguments).at("text");
  const size_t at = whole.find("filler");
  ASSERT_NE(at, std::string::npos) << whole;
  for (const auto& [first, second] :
       std::vector<std::pair<const char*, const char*>>{
           {"no such text", "filler"}, {"filler", "no such text"}}) {
    std::vector<std::string> stopped = arguments;
    stopped.insert(stopped.end(), {"--stop", first, "--stop", second});
    const json object = RunJson(stopped);
    EXPECT_EQ(object.at("text"), whole.substr(0, at));
    EXPECT_EQ(object.at("finish"), "stop");
  }
}

TEST(Run, NeedsNoStandardInput) {
  Invocation invocation;
  invocation.arguments = {"run", TinyCheckpoint().string(), "-p", "a", "-n",
                          "1"};
  invocation.close_stdin = true;
  EXPECT_EQ(Signet(invocation).exit_code, 0);
}

TEST(Run, InterruptedKeepsTheTextSoFar) {
  Invocation invocation = Endless();
  invocation.on_output = [](pid_t child) { kill(child, SIGINT); };
  const Outcome outcome = Signet(invocation);
  EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
  EXPECT_THAT(outcome.out, EndsWith("\n"));
  EXPECT_THAT(outcome.err, HasSubstr(", interrupted\n"));
}

TEST(Run, EndsWhenNobodyReads) {
  Invocation invocation = Endless();
  invocation.read_at_most = 1;
  const Outcome outcome = Signet(invocation);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("cannot write to standard output"));
}

TEST(Run, ClosedStandardOutputIsSaid) {
  for (const char* command : {"plan", "inspect", "program"}) {
    Invocation invocation;
    invocation.arguments = {command, TinyCheckpoint().string()};
    invocation.close_stdout = true;
    const Outcome outcome = Signet(invocation);
    EXPECT_EQ(outcome.exit_code, 1) << command;
    EXPECT_THAT(outcome.err, HasSubstr("cannot write to standard output"));
  }
}

TEST(Run, TruncatedMappingEndsInOneMessage) {
  const fs::path folder = CopyOfTinyCheckpoint("truncated_in_use");
  Invocation invocation = Endless();
  invocation.arguments[1] = folder.string();
  invocation.on_output = [&](pid_t) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".safetensors") {
        fs::resize_file(entry.path(), 0);
      }
    }
  };
  const Outcome outcome = Signet(invocation);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_THAT(outcome.err,
              EndsWith("a mapped checkpoint file was truncated while in "
                       "use\n"));
}

TEST(Plan, PrintsThePlanAndHowLongItTook) {
  const Outcome outcome = Signet({"plan", TinyCheckpoint().string()});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("contract "));
  EXPECT_THAT(outcome.err,
              MatchesRegex("planned in [0-9.]+ ms; [0-9]+ programs of [0-9]+ "
                           "steps sealed in [0-9.]+ ms of it\n"));
}

TEST(Program, HasTheAskedShape) {
  const std::string tiny = TinyCheckpoint().string();
  const Outcome decode = Signet({"program", tiny});
  EXPECT_EQ(decode.exit_code, 0);
  EXPECT_THAT(decode.out, EndsWith("\n"));
  const Outcome prefill = Signet({"program", tiny, "--shape", "prefill"});
  EXPECT_EQ(prefill.exit_code, 0);
  EXPECT_NE(decode.out, prefill.out);
  EXPECT_NE(decode.out, Signet({"program", tiny, "--batch", "4"}).out);
}

TEST(Models, SaysWhatIsThereAndWhereItLooked) {
  const fs::path models = ScratchFolder("models");
  fs::create_directories(models / "Qwen3.6-27B");
  Invocation invocation;
  invocation.arguments = {"models"};
  invocation.environment = {{"SIGNET_MODELS", models.string()},
                            {"HF_HUB_CACHE", ""},
                            {"HF_HOME", "/nowhere/hf"}};
  const Outcome outcome = Signet(invocation);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("demo"));
  EXPECT_THAT(outcome.out, HasSubstr((models / "Qwen3.6-27B").string()));
  EXPECT_THAT(outcome.out, HasSubstr("qwen3.6:35b-a3b"));
  EXPECT_THAT(outcome.out, HasSubstr("not found"));
  EXPECT_THAT(outcome.out, HasSubstr("/nowhere/hf/hub (no such folder)"));
}

TEST(Models, ANameLikeThatOfACommandIsAModel) {
  const Outcome outcome = Signet({"plan", "synth"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("source_not_found"));
}

TEST(Synth, WritesTheSameBytesWithAnyNumberOfThreads) {
  const fs::path one = ScratchFolder("threads") / "one";
  const fs::path three = ScratchFolder("threads") / "three";
  const std::string config = TinyCheckpoint().string();
  ASSERT_EQ(
      Signet({"synth", config, one.string(), "--seed", "9", "--threads", "1"})
          .exit_code,
      0);
  ASSERT_EQ(
      Signet({"synth", config, three.string(), "--seed", "9", "--threads", "3"})
          .exit_code,
      0);
  const std::string bytes = ReadText(FileWithExtension(one, ".safetensors"));
  EXPECT_THAT(bytes, Not(IsEmpty()));
  EXPECT_TRUE(bytes == ReadText(FileWithExtension(three, ".safetensors")));
  EXPECT_FALSE(bytes ==
               ReadText(FileWithExtension(TinyCheckpoint(), ".safetensors")));
}

TEST(Demo, ContinuesAlice) {
  const fs::path demo = fs::path(SIGNET_SOURCE_DIR) / "models" / "demo";
  if (!fs::exists(demo / "config.json")) {
    GTEST_SKIP() << "the demo model is not in this tree";
  }
  Invocation invocation;
  invocation.arguments = {"run", "demo",   "-p", "Alice was", "-n",
                          "16",  "--temp", "0",  "--json"};
  const Outcome outcome = Signet(invocation);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const json object = json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(object.is_object()) << outcome.out;
  EXPECT_THAT(object.at("text").get<std::string>(), Not(IsEmpty()));
}

}  // namespace
}  // namespace signet::testing
