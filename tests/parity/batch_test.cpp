// Same input, same bits: whatever shares the batch, however large it is, on
// any number of threads, run after run.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/checkpoints.h"
#include "support/running_model.h"
#include "support/snapshot.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {
namespace {

constexpr int kSteps = 6;  // of decode

class Batch : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_ = CheckpointFolder(GetParam());
    vocabulary_ = OpenManifest(folder_)->config().vocab;
  }

  static plan::PlanOptions Options(int64_t batch) {
    plan::PlanOptions options = {
        .context = 64, .batch = batch, .page_tokens = 16};
    options.prefill_chunks = {7, 24};
    options.decode_buckets = {1, 2, 3, 8};
    while (options.decode_buckets.back() > batch) {
      options.decode_buckets.pop_back();
    }
    return options;
  }

  std::vector<int32_t> Ids(int64_t count, uint64_t seed) const {
    return SeededIds(vocabulary_, count, seed);
  }

  // The sequence of seed 1 with nobody beside it.
  Snapshot Alone(int64_t batch, int threads, SequenceSlot slot) const {
    RunningModel model(folder_, Options(batch), nullptr, threads);
    SequenceUnderTest sequence(&model, slot);
    sequence.Prefill(Ids(20, 1));
    for (const int32_t id : Ids(kSteps, 101)) sequence.Decode(id);
    return sequence.Take();
  }

  // The same as slot `slot` of a batch whose sequence i has lengths[i] tokens.
  Snapshot Among(const std::vector<int64_t>& lengths, size_t slot,
                 uint64_t seed) const {
    RunningModel model(folder_, Options(8), nullptr, 2);
    SequenceUnderTest sequence(&model,
                               SequenceSlot(static_cast<int32_t>(slot)));
    std::vector<std::vector<int32_t>> fed;
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (i == slot) {
        sequence.Prefill(Ids(20, 1));
        fed.push_back(Ids(kSteps, 101));
      } else {
        model.Prefill(SequenceSlot(static_cast<int32_t>(i)),
                      Ids(lengths[i], seed + i));
        fed.push_back(Ids(kSteps, seed + 50 + i));
      }
    }
    for (size_t step = 0; step < kSteps; ++step) {
      std::vector<int32_t> ids;
      for (const auto& tokens : fed) ids.push_back(tokens[step]);
      sequence.DecodeAmong(ids);
    }
    return sequence.Take();
  }

  std::filesystem::path folder_;
  int64_t vocabulary_ = 0;
};

TEST_P(Batch, N4_BothSequencesOfABatchEqualEachAlone) {
  const Snapshot alone = Alone(8, 2, SequenceSlot(0));
  EXPECT_EQ(FirstDifference(Among({20, 13}, 0, 7), alone), "");
  EXPECT_EQ(FirstDifference(Among({13, 20}, 1, 7), alone), "");
}

TEST_P(Batch, N4_LengthOfANeighbourChangesNothing) {
  const Snapshot alone = Alone(8, 2, SequenceSlot(0));
  for (const int64_t length : {1, 7, 31, 58}) {
    EXPECT_EQ(FirstDifference(Among({20, length}, 0, 9), alone), "")
        << "beside " << length << " tokens";
  }
}

// The routed block is indexed in the small batches and grouped in that of 8.
TEST_P(Batch, N4_DecodeBitsAreEqualAcrossBatchSizes) {
  const Snapshot alone = Alone(1, 2, SequenceSlot(0));
  for (const size_t batch : {2, 3, 8}) {
    const std::vector<int64_t> lengths(batch, 20);
    EXPECT_EQ(FirstDifference(Among(lengths, batch - 1, 11), alone), "")
        << "in a batch of " << batch;
  }
}

TEST_P(Batch, N4_ABatchInALargerShapeHasTheSameBits) {
  const Snapshot alone = Alone(1, 2, SequenceSlot(0));
  // Five rows in the shape of eight.
  EXPECT_EQ(FirstDifference(Among({9, 20, 3, 17, 30}, 1, 13), alone), "");
}

TEST_P(Batch, N3_NumberOfThreadsChangesNoBit) {
  const Snapshot one = Alone(2, 1, SequenceSlot(0));
  for (const int threads : {2, 3}) {
    EXPECT_EQ(FirstDifference(Alone(2, threads, SequenceSlot(0)), one), "")
        << threads << " threads";
  }
}

TEST_P(Batch, N4_SlotChangesNoBit) {
  EXPECT_EQ(FirstDifference(Alone(3, 2, SequenceSlot(2)),
                            Alone(3, 2, SequenceSlot(0))),
            "");
}

TEST_P(Batch, N4_SameInputTwiceGivesTheSameBits) {
  EXPECT_EQ(FirstDifference(Alone(1, 2, SequenceSlot(0)),
                            Alone(1, 2, SequenceSlot(0))),
            "");
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Batch,
                         ::testing::ValuesIn(TinyCheckpointNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace signet::testing
