// X4: what lies in scratch, in the inputs of an earlier call or in the state of
// an earlier sequence never shows.

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/memory_class.h"
#include "support/checkpoints.h"
#include "support/running_model.h"
#include "support/snapshot.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {
namespace {

constexpr std::byte kNaN{0xFF};  // four of them are a NaN, and -1

class DirtyMemory : public ::testing::TestWithParam<std::string> {
 protected:
  DirtyMemory()
      : folder_(CheckpointFolder(GetParam())),
        model_(folder_, Options(), nullptr),
        ids_(SeededIds(model_.plan().config().vocab, 26, /*seed=*/17)) {}

  // The last chunk has fewer rows than the one before.
  static plan::PlanOptions Options() {
    plan::PlanOptions options = {.context = 64, .batch = 2, .page_tokens = 16};
    options.prefill_chunks = {12};
    return options;
  }

  // Two prefill calls and six decode steps in slot 1, `before` ahead of each.
  template <typename Before>
  Snapshot Run(Before before) {
    model_.state().Reset();
    SequenceUnderTest sequence(&model_, SequenceSlot(1));
    before();
    sequence.Prefill({ids_.begin(), ids_.begin() + 12});
    before();
    sequence.Prefill({ids_.begin() + 12, ids_.begin() + 20});
    for (size_t i = 20; i < ids_.size(); ++i) {
      before();
      sequence.Decode(ids_[i]);
    }
    return sequence.Take();
  }

  void Poison(MemoryClass memory_class) {
    exec::Arenas& arenas = model_.programs().arenas();
    ASSERT_GT(arenas.size(memory_class), Bytes(0));
    arenas.Fill(memory_class, kNaN);
  }

  std::filesystem::path folder_;
  RunningModel model_;
  std::vector<int32_t> ids_;
};

TEST_P(DirtyMemory, X4_PoisonedScratchChangesNothing) {
  const Snapshot clean = Run([] {});
  const Snapshot dirty = Run([&] {
    Poison(MemoryClass::kWorkspace);
    Poison(MemoryClass::kIo);
  });
  EXPECT_EQ(FirstDifference(dirty, clean), "");
}

TEST_P(DirtyMemory, X4_DirtyStateAtPositionZeroChangesNothing) {
  const Snapshot clean = Run([] {});
  Poison(MemoryClass::kRecurrent);
  Poison(MemoryClass::kKv);
  EXPECT_EQ(FirstDifference(Run([] {}), clean), "");
}

TEST_P(DirtyMemory, X4_DirtyStateAtAFirstDecodeStepChangesNothing) {
  const auto run = [&] {
    model_.state().Reset();
    SequenceUnderTest sequence(&model_, SequenceSlot(0));
    for (const int32_t id : ids_) sequence.Decode(id);
    return sequence.Take();
  };
  const Snapshot clean = run();
  Poison(MemoryClass::kRecurrent);
  Poison(MemoryClass::kKv);
  EXPECT_EQ(FirstDifference(run(), clean), "");
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, DirtyMemory,
                         ::testing::ValuesIn(TinyCheckpointNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace signet::testing
