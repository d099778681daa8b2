// Whole sealed programs, compared bit for bit: beside neighbours and alone
// (N4), in dirty memory and clean (X4), recorded and launch by launch, fused
// and step by step, once and again. The bodies know no backend: on the CPU,
// where nothing is recorded or fused, they show that the comparison itself
// holds.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/gpu_devices.h"
#include "base/memory_class.h"
#include "support/checkpoints.h"
#include "support/running_model.h"
#include "support/snapshot.h"

namespace signet::testing {
namespace {

constexpr std::byte kNaN{0xFF};  // four of them are a NaN, and -1
constexpr int kSteps = 8;        // of decode

enum class Launches { kRecorded, kEager, kTapped };

class StepCounter final : public exec::TapObserver {
 public:
  void OnStep(std::string_view, std::span<const exec::TapBuffer>,
              int64_t) override {
    ++count_;
  }
  int64_t count() const { return count_; }

 private:
  int64_t count_ = 0;
};

// Sequences in the slots other than `mine`: as a seed has it, they come with a
// prompt, are decoded and leave, so that rows, pages and the loads of experts
// differ from step to step.
class Neighbours {
 public:
  Neighbours(RunningModel* model, SequenceSlot mine, uint32_t seed)
      : model_(*model),
        mine_(mine),
        random_(seed),
        here_(static_cast<size_t>(model->plan().options().batch)) {}

  void ComeAndGo() {
    for (size_t i = 0; i < here_.size(); ++i) {
      const SequenceSlot slot(static_cast<int32_t>(i));
      if (slot == mine_) continue;
      const uint32_t chance = Draw(8);
      if (!here_[i] && chance < 5) {
        std::vector<int32_t> prompt(1 + Draw(30));
        for (int32_t& id : prompt) id = DrawId();
        model_.Prefill(slot, prompt);
        here_[i] = true;
      } else if (here_[i] && chance == 0) {
        model_.state().Release(slot);
        here_[i] = false;
      }
    }
  }

  // A step of all of them and of `sequence`, which is fed `id`; in calls of
  // their own where the program holds one row.
  void Decode(SequenceUnderTest& sequence, int32_t id, bool together) {
    std::vector<SequenceSlot> slots;
    std::vector<int32_t> ids;
    for (size_t i = 0; i < here_.size(); ++i) {
      const SequenceSlot slot(static_cast<int32_t>(i));
      if (slot == mine_ && together) {
        slots.push_back(slot);
        ids.push_back(id);
      } else if (here_[i]) {
        const int32_t other = DrawId();
        ++steps_;
        if (together) {
          slots.push_back(slot);
          ids.push_back(other);
        } else {
          model_.Decode({slot}, {other});
        }
      }
    }
    if (together) {
      sequence.DecodeAmong(slots, ids);
    } else {
      sequence.Decode(id);
    }
  }

  // Rows decoded beside the sequence, in all.
  int64_t steps() const { return steps_; }

 private:
  uint32_t Draw(uint32_t below) {
    return static_cast<uint32_t>(random_()) % below;
  }
  int32_t DrawId() {
    return static_cast<int32_t>(
        Draw(static_cast<uint32_t>(model_.plan().config().vocab)));
  }

  RunningModel& model_;
  SequenceSlot mine_;
  std::mt19937 random_;
  std::vector<bool> here_;
  int64_t steps_ = 0;
};

// Backend, checkpoint, rows of the decode programs.
using Case = std::tuple<std::string, std::string, int64_t>;

class Program : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (on_gpu() && backend::GpuDevices().empty()) {
      GTEST_SKIP() << "no GPU here: " << backend::GpuAbsence();
    }
  }

  bool on_gpu() const { return std::get<0>(GetParam()) == "gpu"; }
  int64_t bucket() const { return std::get<2>(GetParam()); }

  std::unique_ptr<backend::Device> MakeDevice() const {
    return on_gpu() ? ValueOrDie(backend::MakeGpuDevice(
                          backend::GpuDevices().front().identity))
                    : backend::cpu::MakeCpuDevice(0, 2);
  }

  // The chunks are those that a GPU multiplies as decode rows, by small tiles
  // and by large ones.
  plan::PlanOptions Options() const {
    plan::PlanOptions options = {.context = 512, .page_tokens = 16};
    options.batch = std::max<int64_t>(bucket(), 3);
    options.decode_buckets = {bucket()};
    if (bucket() < options.batch) options.decode_buckets = {1, options.batch};
    options.prefill_chunks = {8, 32, 288};
    // The fast attention reads bf16.
    if (std::get<1>(GetParam()) == "moe_wide") {
      options.kv_dtype = tensor::DType::kBF16;
    }
    return options;
  }

  std::unique_ptr<RunningModel> Start(Launches launches) {
    auto model = std::make_unique<RunningModel>(
        CheckpointFolder(std::get<1>(GetParam())), Options(),
        RunsOn{.device = MakeDevice(),
               .observer = launches == Launches::kTapped ? &counter_ : nullptr,
               .recorded = launches == Launches::kRecorded,
               .keeps_failure = true});
    model->DrawAs({.temperature = 0.9f, .top_p = 0.95f, .seed_low = 3});
    return model;
  }

  SequenceSlot mine() const {
    return SequenceSlot(static_cast<int32_t>(Options().batch * 2 / 3));
  }

  // One sequence from its prompt on, with `before` ahead of each of its calls;
  // alone where `seed` is 0.
  template <typename Before>
  Snapshot Run(RunningModel& model, uint32_t seed, Before before) {
    model.state().Reset();
    SequenceUnderTest sequence(&model, mine());
    Neighbours neighbours(&model, mine(), seed);
    const auto meet = [&] {
      if (seed != 0) neighbours.ComeAndGo();
      before();
    };
    uint64_t part = text_;
    for (const int64_t length : {20, 130, 5}) {  // a call each
      meet();
      sequence.Prefill(Ids(model, length, ++part));
    }
    for (const int32_t id : Ids(model, kSteps, ++part)) {
      meet();
      neighbours.Decode(sequence, id, bucket() > 1);
    }
    // Else it was compared with itself.
    EXPECT_EQ(neighbours.steps() > 0, seed != 0);
    EXPECT_EQ(model.failure(), "");
    return sequence.Take();
  }
  Snapshot Run(RunningModel& model, uint32_t seed) {
    return Run(model, seed, [] {});
  }

  static std::vector<int32_t> Ids(const RunningModel& model, int64_t count,
                                  uint64_t seed) {
    return SeededIds(model.plan().config().vocab, count, seed);
  }

  // The same calls of two models end in the same bits, those of all slots
  // among them.
  void ExpectSame(RunningModel& got, RunningModel& want) {
    for (const uint32_t seed : {0u, 5u}) {
      EXPECT_EQ(FirstDifference(Run(got, seed), Run(want, seed)), "")
          << "neighbours of seed " << seed;
      for (const MemoryClass state :
           {MemoryClass::kKv, MemoryClass::kRecurrent}) {
        EXPECT_TRUE(got.StateBytes(state) == want.StateBytes(state))
            << Name(state) << ", neighbours of seed " << seed;
      }
    }
  }

  static std::vector<const exec::BoundProgram*> ProgramsOf(
      RunningModel& model) {
    std::vector<const exec::BoundProgram*> programs;
    for (const auto& program : model.programs().decode()) {
      programs.push_back(&program);
    }
    for (const auto& program : model.programs().prefill()) {
      programs.push_back(&program);
    }
    return programs;
  }

  StepCounter counter_;
  uint64_t text_ = 0;  // which tokens the sequence has
};

// Of snapshots that hold nothing, all would be equal.
TEST_P(Program, OtherTokensChangeEveryPart) {
  const auto model = Start(Launches::kRecorded);
  const Snapshot one = Run(*model, 0);
  text_ = 100;
  const Snapshot other = Run(*model, 0);
  EXPECT_NE(one.logits, other.logits);
  EXPECT_NE(one.drawn, other.drawn);
  for (const auto& [name, tensor] : one.state) {
    EXPECT_NE(tensor.data, other.state.at(name).data) << name;
  }
}

// A sum whose order follows from the live rows or from the load of an expert, a
// row found by its slot, a page of another sequence.
TEST_P(Program, N4_NeighboursChangeNoBit) {
  const auto model = Start(Launches::kRecorded);
  const Snapshot alone = Run(*model, 0);
  for (const uint32_t seed : {1u, 2u, 3u}) {
    EXPECT_EQ(FirstDifference(Run(*model, seed), alone), "")
        << "neighbours of seed " << seed;
  }
}

// Memory that one call finds as another left it: split sums, rows past the
// live ones, counters that nobody resets.
TEST_P(Program, N4_ASecondRunHasTheSameBits) {
  const auto model = Start(Launches::kRecorded);
  const Snapshot first = Run(*model, 0);
  EXPECT_EQ(FirstDifference(Run(*model, 0), first), "");
  // At other addresses.
  const auto other = Start(Launches::kRecorded);
  EXPECT_EQ(FirstDifference(Run(*other, 0), first), "");
}

// A buffer that is read before it is written, or beyond what was.
TEST_P(Program, X4_PoisonedScratchChangesNoBit) {
  const auto model = Start(Launches::kRecorded);
  exec::Arenas& arenas = model->programs().arenas();
  const Snapshot clean = Run(*model, 0);
  for (const uint32_t seed : {0u, 4u}) {
    const Snapshot dirty = Run(*model, seed, [&] {
      for (const MemoryClass scratch :
           {MemoryClass::kWorkspace, MemoryClass::kIo}) {
        ASSERT_GT(arenas.size(scratch), Bytes(0));
        ValueOrDie(arenas.Fill(scratch, kNaN));
      }
    });
    EXPECT_EQ(FirstDifference(dirty, clean), "");
  }
}

// A state that is not begun anew at position 0, and keys and values past the
// end of a sequence: no weight of 0 makes a NaN of them vanish.
TEST_P(Program, X4_DirtyStateChangesNoBit) {
  const auto model = Start(Launches::kRecorded);
  const auto poison = [&] {
    for (const MemoryClass state :
         {MemoryClass::kKv, MemoryClass::kRecurrent}) {
      ValueOrDie(model->programs().arenas().Fill(state, kNaN));
    }
  };
  const auto decode = [&] {  // from the first position on
    model->state().Reset();
    SequenceUnderTest sequence(model.get(), mine());
    for (const int32_t id : Ids(*model, kSteps, 9)) sequence.Decode(id);
    return sequence.Take();
  };
  const Snapshot prefilled = Run(*model, 0);
  const Snapshot decoded = decode();
  poison();
  EXPECT_EQ(FirstDifference(Run(*model, 0), prefilled), "");
  poison();
  EXPECT_EQ(FirstDifference(decode(), decoded), "");
}

// A launch that reads on the host what changes between calls: recorded, it
// keeps what it saw first.
TEST_P(Program, RecordedProgramsHaveTheBitsOfEagerOnes) {
  const auto recorded = Start(Launches::kRecorded);
  const auto eager = Start(Launches::kEager);
  for (const exec::BoundProgram* program : ProgramsOf(*recorded)) {
    ASSERT_EQ(program->replay() != nullptr, on_gpu());
  }
  for (const exec::BoundProgram* program : ProgramsOf(*eager)) {
    ASSERT_EQ(program->replay(), nullptr);
  }
  ExpectSame(*recorded, *eager);
}

// A fused launch that rounds elsewhere, sums in another order or leaves a
// buffer unwritten that a later step reads.
TEST_P(Program, FusedProgramsHaveTheBitsOfSingleSteps) {
  const auto fused = Start(Launches::kRecorded);
  const auto tapped = Start(Launches::kTapped);
  const auto programs = ProgramsOf(*fused);
  const auto steps = ProgramsOf(*tapped);
  ASSERT_EQ(programs.size(), steps.size());
  for (size_t i = 0; i < programs.size(); ++i) {
    const size_t launches = programs[i]->launches().size();
    EXPECT_EQ(launches < steps[i]->launches().size(), on_gpu());
  }
  ExpectSame(*fused, *tapped);
  EXPECT_GT(counter_.count(), 0);
}

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  const auto& [backend, checkpoint, rows] = info.param;
  return fmt::format("{}_{}_{}", backend, checkpoint, rows);
}

// One row, rows that fused products hold, and rows rounded for the tensor
// cores. Widths that are multiples of nothing take the portable kernels.
INSTANTIATE_TEST_SUITE_P(
    Gpu, Program,
    ::testing::Combine(::testing::Values("gpu"),
                       ::testing::Values("moe_wide", "moe_fused_nested",
                                         "moe_awkward", "dense_r3"),
                       ::testing::Values(1, 5, 16)),
    NameOf);
INSTANTIATE_TEST_SUITE_P(
    Cpu, Program,
    ::testing::Combine(::testing::Values("cpu"),
                       ::testing::Values("moe_fused_nested", "dense_r3"),
                       ::testing::Values(1, 5)),
    NameOf);

}  // namespace
}  // namespace signet::testing
