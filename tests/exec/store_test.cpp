// Loading is a transaction (T1) with one owner of all it made (T2), on the
// files that were opened and no others (A3).

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "exec/exec_testing.h"
#include "exec/program_set.h"
#include "store/load_transaction.h"
#include "support/running_model.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;
using Weights = std::shared_ptr<const store::WeightVersion>;

plan::PlanOptions Options() {
  plan::PlanOptions options = {.context = 32, .page_tokens = 8};
  options.prefill_chunks = {4};
  return options;
}

Result<Weights> Load(const std::shared_ptr<const plan::ModelPlan>& plan,
                     backend::Device* device,
                     const store::LoadTransaction::Progress& progress = {}) {
  store::LoadTransaction transaction(plan, {device});
  SIGNET_RETURN_IF_ERROR(transaction.Read(progress));
  return std::move(transaction).Commit();
}

// Every reservation and mapping was given back.
void ExpectNothingHeld(const backend::Device& device) {
  const backend::AllocationCounts counts = device.counts();
  EXPECT_EQ(counts.allocations, counts.frees);
  EXPECT_EQ(counts.maps, counts.unmaps);
  EXPECT_EQ(counts.mapped, Bytes(0));
}

std::vector<float> Answer(RunningModel& model) {
  model.state().Reset();
  std::vector<float> logits = model.Prefill(SequenceSlot(0), {3, 1, 4, 1, 5});
  for (const int32_t id : {9, 2, 6}) {
    const std::vector<float> row = model.Decode({SequenceSlot(0)}, {id});
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

bool HasSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Fails the n-th operation of one kind.
class FailAt final : public backend::FaultHook {
 public:
  FailAt(backend::FaultPoint point, int n) : point_(point), left_(n) {}
  bool ShouldFail(backend::FaultPoint point) override {
    if (point != point_) return false;
    has_struck_ = has_struck_ || left_ == 0;
    return left_-- == 0;
  }
  bool has_struck() const { return has_struck_; }

 private:
  backend::FaultPoint point_;
  int left_;
  bool has_struck_ = false;
};

// A weight file, the first or the last, changes between opening and loading.
void ExpectChangeIsRefused(const std::function<void(const fs::path&)>& change) {
  for (const bool first : {true, false}) {
    const fs::path folder = CopyOfMoeCheckpoint("changed");
    const std::vector<fs::path> files = WeightFiles(folder);
    const fs::path& file = first ? files.front() : files.back();
    const auto plan = MakePlan(folder, Options());
    const auto device = backend::cpu::MakeCpuDevice(0, 1);
    ASSERT_TRUE(Load(plan, device.get()).has_value());
    const uint64_t maps = device->counts().maps;
    change(file);
    const auto loaded = Load(plan, device.get());
    ASSERT_FALSE(loaded.has_value()) << file;
    EXPECT_EQ(device->counts().maps, maps) << "mapped before it was checked";
    EXPECT_TRUE(FailsWith(loaded.error(), FailureKind::kChangedFile));
    EXPECT_EQ(std::get<Failure>(loaded.error()).where, file.string());
    ExpectNothingHeld(*device);
  }
}

// Does `change`, and gives the file its time back.
template <typename Change>
void KeepingItsTime(const fs::path& file, Change change) {
  const auto time = fs::last_write_time(file);
  change();
  fs::last_write_time(file, time);
}

TEST(ChangedFile, A3_NewerTimeIsRefused) {
  ExpectChangeIsRefused([](const fs::path& file) {
    fs::last_write_time(
        file, fs::last_write_time(file) + std::chrono::milliseconds(1));
  });
}

TEST(ChangedFile, A3_LongerFileIsRefused) {
  ExpectChangeIsRefused([](const fs::path& file) {
    KeepingItsTime(file, [&] {
      std::ofstream(file, std::ios::binary | std::ios::app) << "more";
    });
  });
}

TEST(ChangedFile, A3_FileTruncatedAfterOpeningIsRefused) {
  ExpectChangeIsRefused([](const fs::path& file) {
    KeepingItsTime(file,
                   [&] { fs::resize_file(file, fs::file_size(file) - 8); });
  });
}

// The same bytes of the same age under the same path, in another file.
TEST(ChangedFile, A3_ReplacedFileIsRefused) {
  ExpectChangeIsRefused([](const fs::path& file) {
    const fs::path other = file.string() + ".new";
    KeepingItsTime(file, [&] {
      fs::copy_file(file, other);
      fs::rename(other, file);
    });
  });
}

TEST(ChangedFile, A3_RemovedFileIsRefused) {
  ExpectChangeIsRefused([](const fs::path& file) { fs::remove(file); });
}

TEST(ChangedFile, A3_ChangeDuringTheLoadIsRefused) {
  const fs::path folder = CopyOfMoeCheckpoint("changed");
  const fs::path file = WeightFiles(folder).back();
  const auto plan = MakePlan(folder, Options());
  const auto device = backend::cpu::MakeCpuDevice(0, 1);
  const auto loaded = Load(plan, device.get(), [&](Bytes done, Bytes total) {
    if (done != total) return;
    fs::last_write_time(file,
                        fs::last_write_time(file) + std::chrono::seconds(1));
  });
  ASSERT_FALSE(loaded.has_value());
  EXPECT_TRUE(FailsWith(loaded.error(), FailureKind::kChangedFile));
  ExpectNothingHeld(*device);
}

// The mapping's pages are gone before they are read.
TEST(ChangedFile, A3_FileTruncatedDuringTheLoadIsRefused) {
  const fs::path folder = CopyOfMoeCheckpoint("changed");
  const fs::path file = WeightFiles(folder).back();
  const auto plan = MakePlan(folder, Options());
  const auto device = backend::cpu::MakeCpuDevice(0, 1);
  const auto loaded = Load(plan, device.get(), [&](Bytes done, Bytes) {
    if (done == Bytes(0)) fs::resize_file(file, 0);
  });
  ASSERT_FALSE(loaded.has_value());
  EXPECT_TRUE(FailsWith(loaded.error(), FailureKind::kChangedFile));
  ExpectNothingHeld(*device);
}

TEST(Load, T1_AbandonedLoadGivesEverythingBack) {
  const auto plan = MakePlan(MoeCheckpoint(8, 2), Options());
  const auto device = backend::cpu::MakeCpuDevice(0, 1);
  {
    store::LoadTransaction transaction(plan, {device.get()});
    ValueOrDie(transaction.Read({}));
    EXPECT_GT(device->counts().maps, 1u);  // several files
    EXPECT_GT(device->counts().mapped, Bytes(0));
  }
  ExpectNothingHeld(*device);
}

TEST(Load, T1_EveryFailedMappingRollsTheLoadBack) {
  const auto plan = MakePlan(MoeCheckpoint(8, 2), Options());
  const auto device = backend::cpu::MakeCpuDevice(0, 1);
  int points = 0;
  while (true) {
    FailAt fault(backend::FaultPoint::kMap, points);
    device->set_fault_hook(&fault);
    const auto loaded = Load(plan, device.get());
    device->set_fault_hook(nullptr);
    if (!fault.has_struck()) {
      EXPECT_TRUE(loaded.has_value());
      break;
    }
    ++points;
    ASSERT_FALSE(loaded.has_value());
    EXPECT_TRUE(FailsWith(loaded.error(), FailureKind::kIo));
    ExpectNothingHeld(*device);
  }
  EXPECT_EQ(points, static_cast<int>(WeightFiles(MoeCheckpoint(8, 2)).size()));
  ExpectNothingHeld(*device);
}

TEST(Load, T1_EveryFailedReservationGivesTheArenasBack) {
  RunningModel model(MoeCheckpoint(8, 2), Options(), nullptr);
  const std::vector<step::SealedProgram> sealed = SealAll(model.plan());
  const auto before = model.device().counts();
  int points = 0;
  while (true) {
    FailAt fault(backend::FaultPoint::kAllocate, points);
    model.device().set_fault_hook(&fault);
    const auto made = exec::ProgramSet::Make(
        sealed, model.plan(), model.weights(), &model.device(), nullptr);
    model.device().set_fault_hook(nullptr);
    if (!fault.has_struck()) {
      EXPECT_TRUE(made.has_value());
      break;
    }
    ++points;
    ASSERT_FALSE(made.has_value());
    EXPECT_TRUE(FailsWith(made.error(), FailureKind::kMemory));
    const auto after = model.device().counts();
    EXPECT_EQ(after.allocations - after.frees,
              before.allocations - before.frees);
    EXPECT_EQ(after.live, before.live);
  }
  EXPECT_GE(points, 4);  // kv, recurrent, workspace, io
}

TEST(Load, T1_FailedLoadLeavesAServedModelAlone) {
  RunningModel model(MoeCheckpoint(8, 2), Options(), nullptr);
  const std::vector<float> answer = Answer(model);
  const auto before = model.device().counts();

  const fs::path folder = CopyOfMoeCheckpoint("changed");
  const auto plan = MakePlan(folder, Options());
  FailAt fault(backend::FaultPoint::kMap, 1);
  model.device().set_fault_hook(&fault);
  EXPECT_FALSE(Load(plan, &model.device()).has_value());
  model.device().set_fault_hook(nullptr);
  EXPECT_TRUE(fault.has_struck());

  EXPECT_EQ(model.device().counts().mapped, before.mapped);
  EXPECT_TRUE(HasSameBits(Answer(model), answer));
  // A retry in the same process works at once, and disturbs as little.
  EXPECT_TRUE(Load(plan, &model.device()).has_value());
  EXPECT_TRUE(HasSameBits(Answer(model), answer));
}

TEST(Load, T2_LoadingAgainGivesTheSameBits) {
  RunningModel first(MoeCheckpoint(8, 2), Options(), nullptr);
  RunningModel second(MoeCheckpoint(8, 2), Options(), nullptr);
  EXPECT_TRUE(HasSameBits(Answer(second), Answer(first)));
}

TEST(Load, T2_UnloadingFreesTheMappings) {
  const auto plan = MakePlan(MoeCheckpoint(8, 2), Options());
  const auto device = backend::cpu::MakeCpuDevice(0, 1);
  Weights weights = ValueOrDie(Load(plan, device.get()));
  uint64_t file_bytes = 0;
  for (const fs::path& file : WeightFiles(MoeCheckpoint(8, 2))) {
    file_bytes += fs::file_size(file);
  }
  EXPECT_EQ(device->counts().mapped, Bytes(file_bytes));
  EXPECT_EQ(weights->mapped_bytes(), Bytes(file_bytes));
  weights.reset();
  ExpectNothingHeld(*device);
}

TEST(Load, T2_ABoundProgramKeepsItsWeightsUntilItGoes) {
  const auto plan = MakePlan(MoeCheckpoint(8, 2), Options());
  const auto device = backend::cpu::MakeCpuDevice(0, 1);
  const std::vector<step::SealedProgram> sealed = SealAll(*plan);
  Weights weights = ValueOrDie(Load(plan, device.get()));
  auto programs = ValueOrDie(
      exec::ProgramSet::Make(sealed, *plan, weights, device.get(), nullptr));
  weights.reset();
  EXPECT_GT(device->counts().mapped, Bytes(0));
  programs.reset();
  ExpectNothingHeld(*device);
}

TEST(Load, T3_GenerationsAreNeverReused) {
  const auto plan = MakePlan(MoeCheckpoint(8, 2), Options());
  const auto device = backend::cpu::MakeCpuDevice(0, 1);
  uint64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    const Weights weights = ValueOrDie(Load(plan, device.get()));
    EXPECT_GT(weights->generation(), last);
    EXPECT_EQ(weights->contract(), plan->contract_id());
    last = weights->generation();
  }
}

}  // namespace
}  // namespace signet::testing
