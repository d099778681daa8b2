// What is wrong with the command line itself: exit 2, one line that names the
// flag and the value, nothing on standard output. MODEL is never opened.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "e2e/tiny_checkpoint.h"

namespace signet::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Wrong {
  std::string name;
  std::vector<std::string> arguments;
  std::vector<std::string> said;
};

class Usage : public ::testing::TestWithParam<Wrong> {};

TEST_P(Usage, IsRefusedInOneLine) {
  const Outcome outcome = Signet(GetParam().arguments);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1)
      << outcome.err;
  for (const std::string& part : GetParam().said) {
    EXPECT_THAT(outcome.err, HasSubstr(part));
  }
}

std::vector<Wrong> AllWrong() {
  std::vector<Wrong> all = {
      {"NoCommand", {}, {"a command is needed"}},
      {"UnknownCommand", {"frobnicate"}, {"unknown command frobnicate"}},
      {"UnknownCommandWithFlags",
       {"serve", "demo", "--mesh", "single"},
       {"unknown command serve"}},
      {"UnknownCommandHelp", {"serve", "--help"}, {"unknown command serve"}},
      {"FlagBeforeCommand",
       {"--json", "plan", "demo"},
       {"unknown flag --json before the command"}},
      {"NoModel", {"plan"}, {"MODEL"}},
      {"ExtraArgument", {"plan", "demo", "other"}, {"other"}},
      {"NoPrompt", {"run", "demo"}, {"-p TEXT or --ids LIST"}},
      {"TwoPrompts", {"run", "demo", "-p", "a", "--ids", "1"}, {"--ids", "-p"}},
      {"PromptsAndPrompt",
       {"run", "demo", "-p", "a", "--prompts", "f"},
       {"--prompts", "-p"}},
      {"PromptsAndIds",
       {"run", "demo", "--ids", "1", "--prompts", "f"},
       {"--prompts", "--ids"}},
      {"SystemAndRaw",
       {"run", "demo", "-p", "a", "--system", "b", "--raw"},
       {"--system", "--raw"}},
      {"SystemAndIds",
       {"run", "demo", "--ids", "1", "--system", "b"},
       {"--system", "--ids"}},
      {"NoThinkAndRaw",
       {"run", "demo", "-p", "a", "--no-think", "--raw"},
       {"--no-think", "--raw"}},
      {"StopEmpty",
       {"run", "demo", "-p", "a", "--stop", ""},
       {"--stop: got \"\""}},
      {"FlagTwice", {"run", "demo", "-p", "a", "-p", "b"}, {"-p"}},
      {"ValueMissing", {"run", "demo", "-p"}, {"-p"}},
      {"NoFolder", {"synth", "demo"}, {"DIR"}},
  };
  const auto add = [&](const std::string& name, const std::string& flag,
                       const std::string& value) {
    all.push_back({name,
                   {"run", "demo", "-p", "a", flag, value},
                   {flag + ": got \"" + value + "\"", "want"}});
  };
  add("TemperatureNegative", "--temp", "-1");
  add("TemperatureNan", "--temp", "nan");
  add("TemperatureInfinite", "--temp", "inf");
  add("TemperatureTooSmallAFloat", "--temp", "1e-60");
  add("TemperatureTrailing", "--temp", "1x");
  add("TopPZero", "--top-p", "0");
  add("TopPOverOne", "--top-p", "1.01");
  add("TopPNan", "--top-p", "nan");
  add("TopKNegative", "--top-k", "-1");
  add("TopKOverflow", "--top-k", "2147483648");
  add("TokensZero", "-n", "0");
  add("TokensOverflow", "-n", "9223372036854775808");
  add("TokensFraction", "-n", "1.5");
  add("TokensHex", "-n", "0x10");
  add("SeedNegative", "--seed", "-1");
  add("SeedOverflow", "--seed", "18446744073709551616");
  add("ContextText", "--ctx", "many");
  add("ContextOverflow", "--ctx", "99999999999999999999");
  add("BatchText", "--batch", "1,2");
  add("KvUnknown", "--kv", "f16");
  add("ThreadsNegative", "--threads", "-1");
  for (const auto& [name, ids] :
       std::vector<std::pair<std::string, std::string>>{
           {"IdsText", "1,x"},
           {"IdsNegative", "1,-2"},
           {"IdsOverflow", "2147483648"},
           {"IdsEmptyEntry", "1,,2"},
           {"IdsTrailingComma", "1,"},
           {"IdsSpace", "1, 2"},
           {"IdsEmpty", ""}}) {
    all.push_back(
        {name, {"run", "demo", "--ids", ids}, {"--ids: got \"" + ids + "\""}});
  }
  all.push_back({"ShapeUnknown",
                 {"program", "demo", "--shape", "verify"},
                 {"--shape: got \"verify\""}});
  all.push_back({"RankNegative",
                 {"program", "demo", "--rank", "-1"},
                 {"--rank: got \"-1\""}});
  all.push_back({"LayersText",
                 {"synth", "demo", "/tmp/never", "--layers", "few"},
                 {"--layers: got \"few\""}});
  all.push_back({"LauncherWord",
                 {"run", "demo", "--launcher", "slurm", "-p", "a"},
                 {"--launcher: got \"slurm\", want threads or mpi"}});
  all.push_back({"ExpertsWord",
                 {"run", "demo", "--experts", "mine", "-p", "a"},
                 {"--experts: got \"mine\", want split or owned"}});
  all.push_back({"FaultUnknown",
                 {"verify", "demo", "--inject", "gremlins"},
                 {"--inject: got \"gremlins\"", "wrong-token"}});
  all.push_back({"SideWithoutDevices",
                 {"verify", "demo", "--mesh", "ep=2@"},
                 {"--mesh: got \"ep=2@\"", "SPEC@LIST"}});
  all.push_back(
      {"PositionsZero", {"verify", "demo", "-n", "0"}, {"-n: got \"0\""}});
  // Flags that later versions may have are as unknown as any other.
  for (const char* flag : {"--emulate", "--frobnicate"}) {
    std::string name = "Unknown";
    for (const char* at = flag; *at != '\0'; ++at) {
      if (*at != '-') name += *at;
    }
    all.push_back({name,
                   {"run", flag, "value", "demo", "-p", "a"},
                   {std::string("unknown flag ") + flag}});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(CommandLine, Usage, ::testing::ValuesIn(AllWrong()),
                         [](const auto& info) { return info.param.name; });

TEST(Usage, WithJsonNothingIsOnStandardOutput) {
  const Outcome outcome = Signet({"run", "demo", "--json", "-n", "0"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.out, IsEmpty());
}

TEST(Help, OfEveryCommandHasExamples) {
  for (const std::string command :
       {"", "run", "plan", "inspect", "program", "verify", "evidence", "bench",
        "models", "synth"}) {
    std::vector<std::string> arguments = {"--help"};
    if (!command.empty()) arguments.insert(arguments.begin(), command);
    const Outcome outcome = Signet(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << command;
    EXPECT_THAT(outcome.out, HasSubstr("Examples:\n  signet " + command));
    EXPECT_THAT(outcome.err, IsEmpty()) << command;
  }
}

TEST(Version, NamesTheBuild) {
  const Outcome outcome = Signet({"--version"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, ::testing::MatchesRegex(
                               "signet [0-9.]+ \\(build [0-9a-f]+\\)\n"));
}

}  // namespace
}  // namespace signet::testing
