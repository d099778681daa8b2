// The engine against transformers: the same tokens, the same experts, and
// values within the accepted bounds, in prefill and in decode.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parity/comparison.h"
#include "parity/engine_trace.h"
#include "parity/golden.h"
#include "support/checkpoints.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {
namespace {

/// One checkpoint run by all three.
struct Trial {
  std::string staleness;
  Golden golden;
  EngineRun engine;
  Trace fp64;
};

std::unique_ptr<Trial> MakeTrial(const std::string& name,
                                 const std::filesystem::path& folder) {
  auto trial = std::make_unique<Trial>();
  if (!std::filesystem::exists(GoldenPath(name))) {
    trial->staleness =
        fmt::format("there is no {}; make the goldens (tools/oracle/README.md)",
                    GoldenPath(name).string());
    return trial;
  }
  trial->golden = ReadGolden(GoldenPath(name));
  trial->staleness = Staleness(trial->golden, folder);
  if (!trial->staleness.empty()) return trial;
  const Golden& golden = trial->golden;
  trial->engine = RunEngine(folder, {.context = 128, .page_tokens = 16},
                            golden.prompt, golden.fed());
  // Fed transformers' tokens and experts, so that a near tie parts nobody.
  trial->fp64 = TraceOfOracle(LoadOracleModel(folder.string()),
                              golden.all_fed(), &golden.trace.routes);
  return trial;
}

class Parity : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::filesystem::path folder = CheckpointFolder(GetParam());
    if (folder.empty()) GTEST_SKIP() << "there is no models/demo";
    std::unique_ptr<Trial>& made = trials_[GetParam()];
    if (!made) made = MakeTrial(GetParam(), folder);
    trial_ = made.get();
    ASSERT_EQ(trial_->staleness, "");
  }

  // Run once for all tests of a checkpoint.
  static std::map<std::string, std::unique_ptr<Trial>> trials_;
  const Trial* trial_ = nullptr;
};

std::map<std::string, std::unique_ptr<Trial>> Parity::trials_;

TEST_P(Parity, G5_GoldenCoversPrefillAndDecode) {
  const Golden& golden = trial_->golden;
  EXPECT_GE(golden.prompt.size(), 64u);
  EXPECT_GE(golden.tokens.size(), 64u);
  EXPECT_GE(golden.residual_positions.size(), 64u);
  const auto in_prompt = [&](int32_t position) {
    return position < static_cast<int32_t>(golden.prompt.size());
  };
  for (const auto& positions :
       {golden.residual_positions, golden.logit_positions}) {
    const auto prefilled =
        std::count_if(positions.begin(), positions.end(), in_prompt);
    EXPECT_GE(prefilled, 8);
    EXPECT_GE(static_cast<std::ptrdiff_t>(positions.size()) - prefilled, 8);
  }
}

// Each token is the greedy choice after transformers' tokens before it; if all
// agree, so does a run that feeds itself.
TEST_P(Parity, N1_GreedyTokensAreThoseOfTransformers) {
  EXPECT_EQ(trial_->engine.sampled, trial_->golden.tokens);
}

TEST_P(Parity, N1_RoutesAreThoseOfTransformersInOrder) {
  const std::vector<RouteDifference> differences =
      RouteDifferences(trial_->engine.trace, trial_->golden);
  int excused = 0;
  for (const RouteDifference& difference : differences) {
    if (difference.margin < kExcusedMargin) {
      ++excused;
      continue;
    }
    ADD_FAILURE() << "layer " << difference.layer << ", position "
                  << difference.position
                  << ": other experts, where fp64 has a margin of "
                  << difference.margin;
  }
  std::printf(
      "%-22s routes that differ: %zu, excused by a margin under %g: "
      "%d\n",
      GetParam().c_str(), differences.size(), kExcusedMargin, excused);
}

TEST_P(Parity, N1_ValuesKeepTheirBounds) {
  const auto verdicts =
      Judge(trial_->engine.trace, trial_->golden, trial_->fp64);
  for (const auto& [kind, verdict] : verdicts) {
    EXPECT_TRUE(verdict.ok())
        << verdict.worst_tensor << ": " << verdict.measured << " from "
        << (verdict.against_fp64 ? "fp64" : "transformers") << ", bound "
        << verdict.bound;
    std::printf(
        "%-22s %-10s %.2e of %.2e, from %-12s (fp64: engine %.2e, "
        "transformers %.2e)\n",
        GetParam().c_str(), kind.c_str(), verdict.measured, verdict.bound,
        verdict.against_fp64 ? "fp64" : "transformers", verdict.fp64,
        verdict.transformers);
  }
}

std::vector<std::string> AllNames() {
  std::vector<std::string> names = TinyCheckpointNames();
  names.push_back(kDemo);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Parity, ::testing::ValuesIn(AllNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace signet::testing
