// signet verify and signet evidence check, as a stranger's shell runs them:
// exit status, what is printed, the receipt.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/tiny_checkpoint.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Outcome VerifyTiny(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"verify", TinyCheckpoint().string(),
                                        "--mesh", "single",
                                        "--mesh", "ep=2",
                                        "-n",     "16"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Signet(arguments);
}

TEST(Verify, EqualSidesEndWithZero) {
  const Outcome outcome =
      VerifyTiny({"--mesh", "ep=4@cpu:4,cpu:5,cpu:6,cpu:7"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("verdict: every side holds\n"));
  EXPECT_THAT(outcome.out, HasSubstr("prompt \"Alice was beginning"));
  EXPECT_THAT(outcome.out, HasSubstr("16/16"));
  EXPECT_THAT(outcome.out, HasSubstr("cpu:4,cpu:5,cpu:6,cpu:7"));
  EXPECT_THAT(outcome.err, IsEmpty());
}

TEST(Verify, ADifferenceEndsWithFour) {
  for (const bool as_json : {false, true}) {
    std::vector<std::string> arguments = {"--ids", "1,2,3,4,5", "--inject",
                                          "wrong-token"};
    if (as_json) arguments.push_back("--json");
    const Outcome outcome = VerifyTiny(arguments);
    EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
    if (as_json) {
      const json object = json::parse(outcome.out, nullptr, false);
      ASSERT_TRUE(object.is_object()) << outcome.out;
      EXPECT_EQ(object["holds"], false);
      EXPECT_EQ(object["inject"], "wrong-token");
      EXPECT_EQ(object["sides"][1]["first_difference"]["position"], 2);
    } else {
      EXPECT_THAT(outcome.out, HasSubstr("first difference: position 2"));
      EXPECT_THAT(outcome.out, HasSubstr("the sides are DIFFERENT"));
    }
  }
}

TEST(Verify, ARefusedFaultEndsWithThree) {
  const Outcome outcome = VerifyTiny({"--inject", "drop-reduce"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err, HasSubstr("collective_missing"));
}

TEST(Verify, WhatCannotBeComparedEndsWithThree) {
  const Outcome mesh = VerifyTiny({"--mesh", "ep=3"});
  EXPECT_EQ(mesh.exit_code, 3);
  EXPECT_THAT(mesh.err, HasSubstr("experts_indivisible"));
  EXPECT_EQ(Signet({"verify", "/nowhere"}).exit_code, 3);
  EXPECT_EQ(VerifyTiny({"--ctx", "8"}).exit_code, 3);
}

TEST(Verify, AReceiptIsWrittenCheckedAndVoided) {
  const fs::path folder = ScratchFolder("receipts");
  fs::create_directories(folder);
  const std::string file = (folder / "ep2.json").string();
  const Outcome made = VerifyTiny({"--out", file, "--json"});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(json::parse(made.out)["receipt"], file);
  EXPECT_EQ(json::parse(ReadText(file))["build"].get<std::string>().size(),
            40u);

  const Outcome fresh =
      Signet({"evidence", "check", folder.string(), "--strict"});
  EXPECT_EQ(fresh.exit_code, 0) << fresh.out;
  EXPECT_THAT(fresh.out, HasSubstr("1 of 1 receipts"));

  json receipt = json::parse(ReadText(file));
  receipt["execution_code"] = std::string(64, 'a');
  WriteText(file, receipt.dump());
  const Outcome lax = Signet({"evidence", "check", folder.string()});
  EXPECT_EQ(lax.exit_code, 0);
  EXPECT_THAT(lax.out, HasSubstr("void"));
  EXPECT_THAT(lax.out, HasSubstr("renew: signet verify "));
  EXPECT_EQ(
      Signet({"evidence", "check", folder.string(), "--strict"}).exit_code, 4);

  // The command renews it: it is over a receipt, so it may be replaced.
  EXPECT_EQ(VerifyTiny({"--out", file}).exit_code, 0);
  EXPECT_EQ(
      Signet({"evidence", "check", folder.string(), "--strict"}).exit_code, 0);
}

TEST(Verify, AFileThatIsNoReceiptIsKept) {
  const fs::path folder = ScratchFolder("no_receipt");
  fs::create_directories(folder);
  const fs::path file = folder / "thesis.txt";
  WriteText(file, "ten years of work");
  const Outcome outcome = VerifyTiny({"--out", file.string()});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("json_invalid"));
  EXPECT_EQ(ReadText(file), "ten years of work");
  const Outcome nowhere =
      VerifyTiny({"--out", (folder / "none" / "a.json").string()});
  EXPECT_EQ(nowhere.exit_code, 3);
  EXPECT_THAT(nowhere.err, HasSubstr("file_missing"));
}

TEST(Verify, AnInjectedRunIsNoEvidence) {
  const Outcome outcome = VerifyTiny(
      {"--inject", "wrong-token", "--out", "/tmp/signet-never.json"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--inject"));
  EXPECT_FALSE(fs::exists("/tmp/signet-never.json"));
}

TEST(Evidence, NeedsToBeToldWhat) {
  EXPECT_EQ(Signet({"evidence"}).exit_code, 2);
  EXPECT_EQ(Signet({"evidence", "destroy"}).exit_code, 2);
  EXPECT_EQ(Signet({"evidence", "check", "--frobnicate"}).exit_code, 2);
  EXPECT_EQ(Signet({"evidence", "check", "/nowhere"}).exit_code, 3);
}

}  // namespace
}  // namespace signet::testing
