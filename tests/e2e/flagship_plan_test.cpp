// The published checkpoints by name, planned from headers alone: sparse files
// of full length, so no byte of weights is there to read.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <string>

#include "e2e/process.h"
#include "model/registry.h"
#include "support/sparse_checkpoint.h"
#include "support/temporary_folder.h"

namespace signet::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// Plans the checkpoint of a registry name; prints how long it took.
Outcome PlanByName(const std::string& name, const std::string& mesh) {
  const std::filesystem::path models = TemporaryFolder() / "flagships";
  const std::filesystem::path folder = models / name;
  if (!std::filesystem::exists(folder)) {
    std::filesystem::create_directories(models);
    WriteSparseCheckpoint(folder, model::FindRegistered(name)->config_json,
                          SparseParts::kLanguageVisionMtp, 4);
  }
  Invocation invocation;
  invocation.arguments = {"plan", name, "--mesh", mesh};
  invocation.environment = {{"SIGNET_MODELS", models.string()}};
  Outcome outcome = RunProcess(SIGNET_BINARY, invocation);
  std::cout << name << " on " << mesh << ": "
            << outcome.err.substr(outcome.err.find("planned in"));
  return outcome;
}

void ExpectPlan(const Outcome& outcome, const std::string& tensors,
                const std::string& bytes) {
  // 3 where the machine has less memory than the plan needs.
  EXPECT_THAT(outcome.exit_code, AnyOf(0, 3)) << outcome.err;
  if (outcome.exit_code == 3) {
    EXPECT_THAT(outcome.err, HasSubstr("memory_short"));
    EXPECT_THAT(outcome.err, HasSubstr(" short: the plan needs "));
  }
  EXPECT_THAT(outcome.out, HasSubstr(tensors + " tensors"));
  EXPECT_THAT(outcome.out, HasSubstr("(" + bytes + " bytes)"));
  EXPECT_THAT(outcome.out, HasSubstr("contract "));
  EXPECT_THAT(outcome.err, HasSubstr("planned in "));
}

TEST(FlagshipPlan, TheMoeFlagshipIsPlannedByName) {
  const Outcome outcome = PlanByName("qwen3.6:35b-a3b", "single");
  ExpectPlan(outcome, "693", "69321221376");
  EXPECT_THAT(outcome.out, HasSubstr("256 experts of width 512, 8 a token"));
}

TEST(FlagshipPlan, P2_EightRanksHoldAnEighthOfTheExpertsEach) {
  const Outcome outcome = PlanByName("qwen3.6:35b-a3b", "ep=8");
  ExpectPlan(outcome, "693", "69321221376");
  // 40 layers of 32 experts of 3 * 512 * 2048 bf16 numbers.
  EXPECT_THAT(outcome.out, HasSubstr("8.05 GB"));
}

TEST(FlagshipPlan, TheDenseFlagshipIsPlannedByName) {
  ExpectPlan(PlanByName("qwen3.6:27b", "single"), "851", "53791996928");
}

}  // namespace
}  // namespace signet::testing
