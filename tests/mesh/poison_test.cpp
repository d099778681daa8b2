// An error on one rank stops all of them until a reset, and then nothing of it
// is left (contract X5), whichever rank and launch it strikes.

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "support/running_mesh.h"
#include "support/running_model.h"
#include "support/temporary_folder.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {
namespace {

constexpr int kRanks = 4;

plan::PlanOptions Options() {
  return {.context = 64, .batch = 1, .prefill_chunks = {8}};
}

std::filesystem::path Checkpoint() {
  const std::filesystem::path folder = TemporaryFolder() / "poison";
  if (!std::filesystem::exists(folder)) {
    ValueOrDie(WriteTinyCheckpoint("moe_awkward", folder));
  }
  return folder;
}

// Fails the n-th launch from now on; never when n is negative.
class LaunchHook final : public backend::FaultHook {
 public:
  bool ShouldFail(backend::FaultPoint point) override {
    return point == backend::FaultPoint::kLaunch && left_.fetch_sub(1) == 0;
  }
  void FailAt(int64_t n) { left_.store(n); }

 private:
  std::atomic<int64_t> left_{-1};
};

class Poison : public ::testing::Test {
 protected:
  Poison()
      : mesh_(Checkpoint(), "ep=4", Options(), {},
              {&hooks_[0], &hooks_[1], &hooks_[2], &hooks_[3]}),
        wanted_(mesh_.Run(prompt_, 2)),
        state_(States()) {}

  std::vector<std::vector<std::byte>> States() {
    std::vector<std::vector<std::byte>> states;
    for (int r = 0; r < kRanks; ++r) {
      for (const MemoryClass state :
           {MemoryClass::kKv, MemoryClass::kRecurrent}) {
        states.push_back(mesh_.StateBytes(Rank(r), state));
      }
    }
    return states;
  }

  // One call of the first chunk, or of the decode step after it.
  Result<const exec::BoundProgram*> Call(bool prefill) {
    const SequenceSlot slot(0);
    if (mesh_.state().length(slot) == 0) mesh_.state().Extend(slot, 6);
    const std::vector<backend::SamplingRow> sampling = {{.id_bound = 301}};
    std::vector<exec::RowInput> rows;
    for (int i = 0; i < (prefill ? 5 : 1); ++i) {
      rows.push_back({7 + i, 0, prefill ? i : 5});
    }
    return prefill ? mesh_.executor().Prefill(5, rows, sampling)
                   : mesh_.executor().Decode(rows, sampling);
  }

  void ExpectRefusedUntilReset() {
    for (const bool prefill : {true, false}) {
      const auto refused = Call(prefill);
      ASSERT_FALSE(refused.has_value());
      EXPECT_EQ(std::get<Failure>(refused.error()).kind, FailureKind::kState);
    }
    mesh_.Reset();
    const std::vector<float> got = mesh_.Run(prompt_, 2);
    ASSERT_EQ(got.size(), wanted_.size());
    EXPECT_EQ(std::memcmp(got.data(), wanted_.data(), 4 * got.size()), 0);
    EXPECT_TRUE(States() == state_);
  }

  const std::vector<int32_t> prompt_ = {5, 17, 300, 2, 41, 8};
  LaunchHook hooks_[kRanks];
  RunningMesh mesh_;
  const std::vector<float> wanted_;
  const std::vector<std::vector<std::byte>> state_;
};

TEST_F(Poison, X5_ADeviceErrorInMidStepStopsEveryRank) {
  for (int rank = 0; rank < kRanks; ++rank) {
    for (const bool prefill : {true, false}) {
      for (const int64_t launch : {0, 23}) {
        SCOPED_TRACE("rank " + std::to_string(rank) + ", launch " +
                     std::to_string(launch) + (prefill ? " of prefill" : ""));
        mesh_.Reset();
        if (!prefill) ValueOrDie(Call(true));
        hooks_[rank].FailAt(launch);
        const auto failed = Call(prefill);
        hooks_[rank].FailAt(-1);
        ASSERT_FALSE(failed.has_value());
        EXPECT_EQ(std::get<Failure>(failed.error()).kind, FailureKind::kDevice);
        ExpectRefusedUntilReset();
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Keys that are not numbers on one rank alone: its scores are not finite.
TEST_F(Poison, X5_ANumericErrorOnOneRankStopsEveryRank) {
  for (int rank = 0; rank < kRanks; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    mesh_.Reset();
    ValueOrDie(Call(true));
    mesh_.executor()
        .programs(Rank(rank))
        .arenas()
        .Fill(MemoryClass::kKv, std::byte{0xff});
    const auto failed = Call(false);
    ASSERT_FALSE(failed.has_value());
    const Failure& failure = std::get<Failure>(failed.error());
    EXPECT_EQ(failure.kind, FailureKind::kNumeric) << failure.message;
    // What was never written stays as the fill left it.
    mesh_.executor()
        .programs(Rank(rank))
        .arenas()
        .Fill(MemoryClass::kKv, std::byte{0});
    ExpectRefusedUntilReset();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace signet::testing
