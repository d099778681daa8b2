// signet bench, as a stranger's shell runs it: exit status and what is printed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/tiny_checkpoint.h"

namespace signet::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Outcome BenchOf(const std::string& model, std::vector<std::string> more) {
  std::vector<std::string> arguments = {"bench", model, "-P", "64",
                                        "-n",    "16",  "-b", "1,2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Signet(arguments);
}

TEST(Bench, PrintsATableForPeople) {
  const Outcome outcome = BenchOf("demo", {"--profile"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part :
       {"ceilings  read ", "load ", "prefill ", "decode ", "moved in a step",
        "routed_experts", "profile: decode, 1 rows of 1",
        "profile: prefill, 32 rows of 32", "projection u", "mean us",
        "launches one by one: ", "; as served: ", ", commit ",
        "compare ratios"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
  EXPECT_THAT(outcome.err, HasSubstr("measuring decode, batch 2\n"));
}

TEST(Bench, PrintsOneObjectWithJson) {
  const Outcome outcome = BenchOf(
      "demo", {"--ctx", "128", "--batch", "3", "--repeat", "6", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const json object = json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(object.is_object()) << outcome.out;
  EXPECT_EQ(object["repeat"], 6);
  EXPECT_EQ(object["batch"], 3);
  EXPECT_EQ(object["context"], 128);
  EXPECT_EQ(object["prefill"].size(), 1u);
  EXPECT_EQ(object["prefill"][0]["tokens"], 64);
  EXPECT_GT(object["prefill"][0]["tok_s"]["median"], 0);
  EXPECT_EQ(object["decode"].size(), 2u);
  for (const json& decode : object["decode"]) {
    EXPECT_EQ(decode["steps"], 15);
    EXPECT_GT(decode["step_ms"]["min"], 0);
    EXPECT_GT(decode["read_share"], 0);
    EXPECT_EQ(decode["experts"]["same_tokens"], true);
  }
  EXPECT_TRUE(object["profile"].empty());
}

TEST(Bench, WritesTheObjectItPrints) {
  const auto folder = ScratchFolder("bench_out");
  std::filesystem::create_directories(folder);
  const std::filesystem::path file = folder / "a.json";
  const Outcome outcome = BenchOf("demo", {"--out", file.string(), "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const json written = json::parse(ReadText(file.string()), nullptr, false);
  EXPECT_EQ(written, json::parse(outcome.out, nullptr, false));
  EXPECT_EQ(written["signet_bench"], 1);
  // Before anything is measured.
  WriteText(folder / "notes.json", "{}");
  const Outcome refused =
      BenchOf("demo", {"--out", (folder / "notes.json").string()});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("only a bench is written over"));
  EXPECT_THAT(refused.err, Not(HasSubstr("measuring")));
  EXPECT_EQ(ReadText((folder / "notes.json").string()), "{}");
}

TEST(Bench, WhatCannotBeMeasuredIsRefused) {
  const Outcome context = BenchOf("demo", {"--ctx", "63"});
  EXPECT_EQ(context.exit_code, 3);
  EXPECT_THAT(context.err, HasSubstr("--ctx; got 63; want at least 64"));
  EXPECT_THAT(context.out, IsEmpty());
  EXPECT_EQ(BenchOf("/nowhere", {}).exit_code, 3);
  EXPECT_EQ(Signet({"bench", "demo", "--devices", "gpu:99"}).exit_code, 3);
}

TEST(Bench, ListsThatCannotBeRightAreUsageErrors) {
  const auto expect_usage = [](const char* flag, const char* value) {
    const Outcome outcome = Signet({"bench", "demo", flag, value});
    EXPECT_EQ(outcome.exit_code, 2) << flag << value;
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_THAT(outcome.err,
                HasSubstr(std::string(flag) + ": got \"" + value + "\", want"));
  };
  for (const char* flag : {"-P", "-b"}) {
    for (const char* value : {"", "0", "1,", "1,1", "-1", "8,0", "many"}) {
      expect_usage(flag, value);
    }
  }
  expect_usage("-n", "1");
  expect_usage("--repeat", "4");
}

}  // namespace
}  // namespace signet::testing
