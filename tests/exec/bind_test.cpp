// Binding checks the world a program is bound to (S8) and nothing else; what is
// bound runs on memory of its own generation only (T3).

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/forwarding_device.h"
#include "exec/exec_testing.h"
#include "store/load_transaction.h"
#include "support/running_model.h"

namespace signet::testing {
namespace {

using Sizes = std::map<MemoryClass, Bytes>;

/// A device whose memory begins one byte past where it should.
class MisalignedDevice final : public backend::ForwardingDevice {
 public:
  explicit MisalignedDevice(backend::Device* inner)
      : ForwardingDevice(*inner) {}

  Result<backend::Memory> Allocate(MemoryClass memory_class, Bytes size,
                                   uint64_t /*alignment*/) override {
    blocks_.emplace_back(size.value() + 128);
    void* begin = blocks_.back().data();
    size_t space = blocks_.back().size();
    std::align(64, size.value(), begin, space);
    return backend::Memory(this, static_cast<std::byte*>(begin) + 1,
                           static_cast<std::byte*>(begin) + 1, size, size,
                           memory_class);
  }

 private:
  void Free(backend::Memory&) override {}  // the blocks go with the device
  std::vector<std::vector<std::byte>> blocks_;
};

/// A device that says where the experts of its tables lie, as a GPU does.
class LayoutDevice final : public backend::ForwardingDevice {
 public:
  explicit LayoutDevice(backend::Device* inner) : ForwardingDevice(*inner) {}

  Result<backend::CommittedTable> CommitTable(
      backend::LoadKey key, std::span<const backend::ExpertPointers> experts,
      std::span<const int32_t> global_to_local, const backend::Memory& memory,
      uint64_t offset) override {
    SIGNET_ASSIGN_OR_RETURN(backend::CommittedTable table,
                            ForwardingDevice::CommitTable(
                                key, experts, global_to_local, memory, offset));
    table.layout = {.gate = {experts[0].gate, 1},
                    .up = {experts[0].up, 2},
                    .down = {experts[0].down, 3}};
    return table;
  }
};

class Bind : public ::testing::Test {
 protected:
  Bind()
      : model_(MoeCheckpoint(8, 2), Options(64), nullptr),
        sealed_(SealAll(model_.plan())) {}

  static plan::PlanOptions Options(int64_t context) {
    plan::PlanOptions options = {.context = context, .page_tokens = 16};
    options.prefill_chunks = {4};
    return options;
  }

  const step::SealedProgram& program() const { return sealed_.front(); }
  const Sizes& sizes() const { return program().arena_bytes(); }
  uint64_t generation() const { return model_.weights()->generation(); }

  exec::Arenas MakeArenas(backend::Device* device, const Sizes& sizes,
                          uint64_t generation) {
    return ValueOrDie(exec::Arenas::Make(device, sizes, generation));
  }
  exec::Arenas GoodArenas() {
    return MakeArenas(&model_.device(), sizes(), generation());
  }
  Result<exec::BoundProgram> BindTo(const exec::Arenas& arenas) {
    return exec::Bind(program(), model_.plan(), model_.weights(), arenas,
                      nullptr);
  }
  void ExpectRefusal(const Result<exec::BoundProgram>& bound,
                     RejectionCode code) {
    ASSERT_FALSE(bound.has_value());
    EXPECT_TRUE(RefusesWith(bound.error(), code));
  }

  RunningModel model_;
  std::vector<step::SealedProgram> sealed_;
};

TEST_F(Bind, S8_BindsToArenasAsPlanned) {
  const exec::Arenas arenas = GoodArenas();
  const auto bound = BindTo(arenas);
  ASSERT_TRUE(bound.has_value());
  EXPECT_EQ(bound->generation(), generation());
  EXPECT_EQ(bound->launches().size(), program().steps().size());
  EXPECT_FALSE(bound->taps().has_value());
}

TEST_F(Bind, S8_BindsToArenasLargerThanPlanned) {
  Sizes larger = sizes();
  for (auto& [memory_class, size] : larger) size += Bytes(4096);
  const exec::Arenas arenas =
      MakeArenas(&model_.device(), larger, generation());
  EXPECT_TRUE(BindTo(arenas).has_value());
}

TEST_F(Bind, S8_PlanOfOtherOptionsIsRefused) {
  const exec::Arenas arenas = GoodArenas();
  const auto plan = MakePlan(MoeCheckpoint(8, 2), Options(48));
  ExpectRefusal(exec::Bind(program(), *plan, model_.weights(), arenas, nullptr),
                RejectionCode::kBindContractMismatch);
}

TEST_F(Bind, S8_WeightsOfAnotherCheckpointAreRefused) {
  RunningModel other(MoeCheckpoint(4, 4), Options(64), nullptr);
  const exec::Arenas arenas =
      MakeArenas(&model_.device(), sizes(), other.weights()->generation());
  ExpectRefusal(
      exec::Bind(program(), model_.plan(), other.weights(), arenas, nullptr),
      RejectionCode::kBindContractMismatch);
}

TEST_F(Bind, S8_WeightsOfAnotherPlanAreRefused) {
  RunningModel other(MoeCheckpoint(8, 2), Options(48), nullptr);
  const exec::Arenas arenas =
      MakeArenas(&model_.device(), sizes(), other.weights()->generation());
  ExpectRefusal(
      exec::Bind(program(), model_.plan(), other.weights(), arenas, nullptr),
      RejectionCode::kBindContractMismatch);
}

TEST_F(Bind, S8_EachArenaMustHaveItsPlannedSize) {
  int tried = 0;
  for (const auto& [memory_class, size] : sizes()) {
    if (size == Bytes(0)) continue;
    ++tried;
    for (const Bytes too_small : {size - Bytes(1), Bytes(0)}) {
      Sizes changed = sizes();
      changed[memory_class] = too_small;
      const exec::Arenas arenas =
          MakeArenas(&model_.device(), changed, generation());
      const auto bound = BindTo(arenas);
      ExpectRefusal(bound, RejectionCode::kBindArenaTooSmall);
      const auto& rejections = std::get<Rejections>(bound.error()).list();
      ASSERT_EQ(rejections.size(), 1u);
      EXPECT_EQ(rejections[0].where, Name(memory_class));
    }
  }
  EXPECT_GE(tried, 4);  // kv, recurrent, workspace, io
}

TEST_F(Bind, S8_ArenasOfAnotherDeviceAreRefused) {
  const auto device = backend::cpu::MakeCpuDevice(/*ordinal=*/1, 1);
  const exec::Arenas arenas = MakeArenas(device.get(), sizes(), generation());
  ExpectRefusal(BindTo(arenas), RejectionCode::kBindArenaDevice);
}

TEST_F(Bind, S8_MisalignedArenasAreRefused) {
  MisalignedDevice device(&model_.device());
  const exec::Arenas arenas = MakeArenas(&device, sizes(), generation());
  ExpectRefusal(BindTo(arenas), RejectionCode::kBindArenaMisaligned);
}

TEST_F(Bind, T3_ArenasOfAStaleGenerationAreRefused) {
  store::LoadTransaction transaction(MakePlan(MoeCheckpoint(8, 2), Options(64)),
                                     {&model_.device()});
  ValueOrDie(transaction.Read({}));
  const auto reloaded = ValueOrDie(std::move(transaction).Commit());
  ASSERT_EQ(reloaded->contract(), model_.weights()->contract());
  const exec::Arenas stale = GoodArenas();
  ExpectRefusal(exec::Bind(program(), model_.plan(), reloaded, stale, nullptr),
                RejectionCode::kBindGenerationStale);
}

// Kernels whose device knows a rule for the experts' addresses are given it.
TEST_F(Bind, T4_LaunchesKnowWhereTheExpertsLie) {
  LayoutDevice device(&model_.device());
  store::LoadTransaction transaction(MakePlan(MoeCheckpoint(8, 2), Options(64)),
                                     {&device});
  ValueOrDie(transaction.Read({}));
  const auto weights = ValueOrDie(std::move(transaction).Commit());
  const exec::Arenas arenas =
      MakeArenas(&model_.device(), sizes(), weights->generation());
  const exec::BoundProgram bound = ValueOrDie(
      exec::Bind(program(), model_.plan(), weights, arenas, nullptr));
  int seen = 0;
  for (const exec::Launch& launch : bound.launches()) {
    const auto* args = std::get_if<backend::IndexedGateUpArgs>(&launch);
    if (args == nullptr) continue;
    ++seen;
    const backend::ExpertTableView& table = args->table;
    EXPECT_EQ(table.layout.gate.first, table.experts[0].gate);
    EXPECT_EQ(table.layout.up.first, table.experts[0].up);
    EXPECT_EQ(table.layout.down.first, table.experts[0].down);
    EXPECT_EQ(table.layout.gate.apart, 1);
    EXPECT_EQ(table.layout.up.apart, 2);
    EXPECT_EQ(table.layout.down.apart, 3);
  }
  EXPECT_GT(seen, 0);
}

TEST_F(Bind, S8_EveryReasonIsReportedAtOnce) {
  const auto device = backend::cpu::MakeCpuDevice(/*ordinal=*/1, 1);
  const exec::Arenas arenas = MakeArenas(device.get(), {}, generation() + 1);
  const auto bound = BindTo(arenas);
  ASSERT_FALSE(bound.has_value());
  const auto& rejections = std::get<Rejections>(bound.error());
  for (const RejectionCode code :
       {RejectionCode::kBindArenaDevice, RejectionCode::kBindArenaTooSmall,
        RejectionCode::kBindGenerationStale}) {
    EXPECT_TRUE(rejections.Has(code)) << Name(code);
  }
}

TEST_F(Bind, T3_ExecutionRefusesArenasThatWereMadeAnew) {
  exec::Arenas arenas = GoodArenas();
  const exec::BoundProgram bound = ValueOrDie(BindTo(arenas));
  // The memory the program points to stays, so that a write would show.
  exec::Arenas old = std::move(arenas);
  arenas = MakeArenas(&model_.device(), sizes(), generation() + 1);
  old.Fill(MemoryClass::kIo, std::byte{0xA5});
  exec::Executor executor(&model_.device());
  const exec::RowInput row = {.id = 1, .slot = 0, .position = 0};
  const backend::SamplingRow sampling = {.id_bound = 2};
  const auto run = executor.Run(bound, {&row, 1}, {&sampling, 1});
  ASSERT_FALSE(run.has_value());
  EXPECT_TRUE(FailsWith(run.error(), FailureKind::kState));
  const std::byte* io = old.data(MemoryClass::kIo);
  for (uint64_t i = 0; i < old.size(MemoryClass::kIo).value(); ++i) {
    ASSERT_EQ(io[i], std::byte{0xA5}) << "byte " << i << " was written";
  }
}

}  // namespace
}  // namespace signet::testing
