// The executor refuses run-time scalars out of range before any launch (G5),
// and a decode step takes nothing from the heap (X6).

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/forwarding_device.h"
#include "exec/block_reference.h"
#include "exec/exec_testing.h"
#include "out_of_memory/failing_allocator.h"
#include "support/running_model.h"

namespace signet::testing {
namespace {

using exec::RowInput;

constexpr int64_t kContext = 32;
constexpr int64_t kSlots = 3;
constexpr int64_t kChunk = 4;

plan::PlanOptions Options() {
  plan::PlanOptions options = {
      .context = kContext, .batch = kSlots, .page_tokens = 8};
  options.prefill_chunks = {kChunk};
  options.decode_buckets = {1, kSlots};
  return options;
}

class LaunchCounter final : public exec::TapObserver {
 public:
  void OnStep(std::string_view, std::span<const exec::TapBuffer>,
              int64_t live_rows) override {
    ++count;
    live = live_rows;
  }
  int count = 0;
  int64_t live = 0;
};

class ExecutorChecks : public ::testing::Test {
 protected:
  ExecutorChecks()
      : model_(MoeCheckpoint(8, 2), Options(), &counter_),
        executor_(&model_.device()),
        vocabulary_(static_cast<int32_t>(model_.plan().config().vocab)) {
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      model_.state().Extend(SequenceSlot(slot), kContext);
    }
  }

  const exec::BoundProgram& decode() {
    return model_.programs().Decode(kSlots);
  }
  const exec::BoundProgram& prefill() {
    return model_.programs().Prefill(kChunk);
  }
  backend::SamplingRow Greedy() const { return {.id_bound = vocabulary_}; }

  void ExpectRuns(const exec::BoundProgram& program,
                  const std::vector<RowInput>& rows) {
    counter_ = {};
    const size_t logits = &program == &prefill() ? 1 : rows.size();
    const std::vector<backend::SamplingRow> sampling(logits, Greedy());
    EXPECT_TRUE(executor_.Run(program, rows, sampling).has_value());
    EXPECT_EQ(static_cast<size_t>(counter_.count), program.launches().size());
    EXPECT_EQ(counter_.live, static_cast<int64_t>(rows.size()));
  }

  void ExpectRefused(const exec::BoundProgram& program,
                     const std::vector<RowInput>& rows,
                     const std::vector<backend::SamplingRow>& sampling) {
    counter_ = {};
    const Result<void> run = executor_.Run(program, rows, sampling);
    ASSERT_FALSE(run.has_value());
    EXPECT_TRUE(RefusesWith(run.error(), RejectionCode::kRequestInvalid));
    EXPECT_EQ(counter_.count, 0) << "launched before it was checked";
  }
  void ExpectRefused(const exec::BoundProgram& program,
                     const std::vector<RowInput>& rows) {
    const size_t logits = &program == &prefill() ? 1 : rows.size();
    ExpectRefused(program, rows,
                  std::vector<backend::SamplingRow>(logits, Greedy()));
  }

  LaunchCounter counter_;
  RunningModel model_;
  exec::Executor executor_;
  int32_t vocabulary_;
};

TEST_F(ExecutorChecks, G5_TheLastOfEachRangeRuns) {
  ExpectRuns(decode(), {{0, 0, 0}});
  ExpectRuns(decode(), {{vocabulary_ - 1, kSlots - 1, kContext - 1}});
  ExpectRuns(decode(), {{1, 0, 3}, {2, 1, 0}, {3, 2, 17}});
  ExpectRuns(prefill(), {{1, 2, 28}, {2, 2, 29}, {3, 2, 30}, {4, 2, 31}});
}

TEST_F(ExecutorChecks, G5_RowsOutsideTheShapeAreRefused) {
  ExpectRefused(decode(), {});
  ExpectRefused(prefill(), {});
  ExpectRefused(decode(), {{1, 0, 0}, {1, 1, 0}, {1, 2, 0}, {1, 3, 0}});
  ExpectRefused(prefill(),
                {{1, 0, 0}, {1, 0, 1}, {1, 0, 2}, {1, 0, 3}, {1, 0, 4}});
}

TEST_F(ExecutorChecks, G5_IdsOutsideTheVocabularyAreRefused) {
  for (const int32_t id : {-1, vocabulary_, INT32_MAX, INT32_MIN}) {
    ExpectRefused(decode(), {{1, 0, 0}, {id, 1, 0}});
    ExpectRefused(prefill(), {{1, 0, 0}, {id, 0, 1}});
  }
}

TEST_F(ExecutorChecks, G5_SlotsOutsideTheBatchAreRefused) {
  for (const int32_t slot : {-1, static_cast<int32_t>(kSlots), INT32_MAX}) {
    ExpectRefused(decode(), {{1, slot, 0}});
    ExpectRefused(prefill(), {{1, slot, 0}, {1, slot, 1}});
  }
}

TEST_F(ExecutorChecks, G5_PositionsOutsideTheContextAreRefused) {
  for (const int32_t position :
       {-1, static_cast<int32_t>(kContext), INT32_MAX}) {
    ExpectRefused(decode(), {{1, 0, position}});
    ExpectRefused(prefill(), {{1, 0, position}});
  }
  ExpectRefused(prefill(), {{1, 0, 30}, {1, 0, 31}, {1, 0, 32}});
}

TEST_F(ExecutorChecks, G5_PositionsOnPagesNotHeldAreRefused) {
  model_.state().Release(SequenceSlot(1));
  ExpectRefused(decode(), {{1, 0, 0}, {1, 1, 0}});
  ExpectRefused(prefill(), {{1, 1, 0}, {1, 1, 1}});
  model_.state().Extend(SequenceSlot(1), 9);  // two pages of 8
  ExpectRuns(decode(), {{1, 1, 15}});
  ExpectRefused(decode(), {{1, 1, 16}});
  ExpectRuns(prefill(), {{1, 1, 14}, {1, 1, 15}});
  ExpectRefused(prefill(), {{1, 1, 15}, {1, 1, 16}});
}

TEST_F(ExecutorChecks, G5_PagesOutsideThePoolAreRefused) {
  const auto pages = static_cast<int32_t>(model_.plan().pool().num_pages);
  const std::span<int32_t> table = model_.programs().page_table();
  const size_t second_of_slot_1 =
      static_cast<size_t>(model_.plan().pool().pages_per_slot) + 1;
  for (const int32_t page : {-1, pages, INT32_MAX, INT32_MIN}) {
    const int32_t held = std::exchange(table[second_of_slot_1], page);
    ExpectRuns(decode(), {{1, 1, 7}});
    ExpectRefused(decode(), {{1, 1, 8}});
    ExpectRefused(decode(), {{1, 0, 0}, {1, 1, 31}});
    ExpectRefused(prefill(), {{1, 1, 30}, {1, 1, 31}});
    table[second_of_slot_1] = held;
    ExpectRuns(decode(), {{1, 1, 31}});
  }
}

TEST_F(ExecutorChecks, G5_PrefillRowsAreOneRunOfOneSequence) {
  ExpectRefused(prefill(), {{1, 0, 0}, {1, 0, 2}});
  ExpectRefused(prefill(), {{1, 0, 1}, {1, 0, 0}});
  ExpectRefused(prefill(), {{1, 0, 5}, {1, 0, 5}});
  ExpectRefused(prefill(), {{1, 0, 0}, {1, 1, 1}});
}

TEST_F(ExecutorChecks, G5_DecodeRowsAreAscendingSlots) {
  ExpectRefused(decode(), {{1, 1, 0}, {1, 0, 0}});
  ExpectRefused(decode(), {{1, 1, 0}, {1, 1, 1}});
  ExpectRefused(decode(), {{1, 0, 0}, {1, 2, 0}, {1, 1, 0}});
}

TEST_F(ExecutorChecks, G5_SamplingParametersFitTheLogitsRows) {
  const std::vector<RowInput> rows = {{1, 0, 0}, {1, 1, 0}};
  ExpectRefused(decode(), rows, {});
  ExpectRefused(decode(), rows, {Greedy()});
  ExpectRefused(decode(), rows, {Greedy(), Greedy(), Greedy()});
  ExpectRefused(prefill(), {{1, 0, 0}, {1, 0, 1}}, {Greedy(), Greedy()});
  for (const int32_t bound : {0, -1, vocabulary_ + 1}) {
    ExpectRefused(decode(), rows, {Greedy(), {.id_bound = bound}});
  }
}

TEST_F(ExecutorChecks, G5_InputsOfABlockFitItsRows) {
  RunningBlock block(&model_, {.kind = plan::ShapeKind::kDecode, .rows = 2},
                     step::RouterKind::kPrecomputed);
  const BlockCall good =
      RoutedRows(2, model_.plan().config().hidden, 8, 2, /*seed=*/1);
  ASSERT_TRUE(block.Run(good.inputs()).has_value());
  const auto expect_refused = [&](auto change) {
    BlockCall bad = good;
    change(bad);
    const auto run = block.Run(bad.inputs());
    ASSERT_FALSE(run.has_value());
    EXPECT_TRUE(RefusesWith(run.error(), RejectionCode::kRequestInvalid));
  };
  expect_refused([](BlockCall& call) { call.live = 3; });
  expect_refused([](BlockCall& call) { call.live = -1; });
  expect_refused([](BlockCall& call) { call.live = 1; });
  expect_refused([](BlockCall& call) { call.x.pop_back(); });
  expect_refused([](BlockCall& call) { call.ids.pop_back(); });
  expect_refused([](BlockCall& call) { call.weights.pop_back(); });
  expect_refused([](BlockCall& call) { call.ids.clear(); });
}

// A launch takes as many seconds as there were before it, and one.
class CountingClock final : public backend::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  Result<std::vector<double>> Time(
      backend::LaunchKey,
      std::span<const std::function<void()>> launches) override {
    std::vector<double> seconds;
    for (const auto& launch : launches) {
      launch();
      seconds.push_back(static_cast<double>(seconds.size() + 1));
    }
    return seconds;
  }
};

TEST_F(ExecutorChecks, AProfileTimesEachLaunchAndThenNothing) {
  CountingClock clock(model_.device());
  exec::Executor executor(&clock);
  const std::vector<RowInput> rows = {{1, 0, 0}, {1, 1, 0}, {1, 2, 0}};
  const std::vector<backend::SamplingRow> sampling(rows.size(), Greedy());
  const auto times = ValueOrDie(executor.Profile(decode(), rows, sampling));
  const size_t launches = decode().launches().size();
  ASSERT_EQ(times.launches.size(), launches);
  EXPECT_EQ(times.launches.back(), static_cast<double>(launches));
  EXPECT_EQ(times.nothing, static_cast<double>(launches + 1));
}

TEST(Executor, X6_CounterSeesWhatIsTaken) {
  const AllocationWatch watch;
  const auto taken = std::make_unique<std::vector<int>>(8);
  EXPECT_EQ(watch.count(), 2);
}

TEST(Executor, X6_DecodeStepsTakeNothingFromTheHeap) {
  for (const int threads : {1, 2}) {
    RunningModel model(MoeCheckpoint(8, 2), Options(), nullptr, threads);
    exec::Executor executor(&model.device());
    const auto vocabulary = static_cast<int32_t>(model.plan().config().vocab);
    std::vector<RowInput> rows;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      model.Prefill(SequenceSlot(slot), {5, 6, 7});
      rows.push_back({9, slot, 3});
    }
    // Greedy and drawn: the two ways to sample.
    const std::vector<backend::SamplingRow> sampling = {
        {.id_bound = vocabulary},
        {.temperature = 0.8f, .top_k = 5, .id_bound = vocabulary},
        {.temperature = 1.0f, .top_p = 0.9f, .id_bound = vocabulary}};
    const exec::BoundProgram& program = model.programs().Decode(kSlots);
    bool ran = true;
    const AllocationWatch watch;
    for (int step = 0; step < 12; ++step) {  // over two page borders
      for (RowInput& row : rows) {
        model.state().Extend(SequenceSlot(row.slot), 1);
      }
      ran = ran && executor.Run(program, rows, sampling).has_value();
      for (RowInput& row : rows) ++row.position;
    }
    const int64_t taken = watch.count();
    EXPECT_TRUE(ran);
    EXPECT_EQ(taken, 0) << threads << " threads";
  }
}

}  // namespace
}  // namespace signet::testing
