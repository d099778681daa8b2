// What keeps ranks from running on what they must not: another mesh's
// programs, other weights, a rank that failed (contract F2, T4, X5); and the
// bytes of split experts (P3).

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "backend/cpu/cpu_device.h"
#include "exec/mesh_executor.h"
#include "store/load_transaction.h"
#include "support/running_mesh.h"
#include "support/running_model.h"

namespace signet::testing {
namespace {

plan::PlanOptions Options() {
  return {.context = 64, .batch = 1, .prefill_chunks = {8}};
}

std::filesystem::path Demo() {
  return std::filesystem::path(SIGNET_SOURCE_DIR) / "models/demo";
}

using Plan = std::shared_ptr<const plan::ModelPlan>;
Plan DemoPlan(std::string_view mesh) {
  return ValueOrDie(
      plan::MakeModelPlan(OpenManifest(Demo()), CpuMesh(mesh), Options()));
}

/// The weights of a plan and the devices that hold them.
struct Loaded {
  explicit Loaded(const Plan& plan) {
    std::vector<backend::Device*> pointers;
    for (int r = 0; r < plan->mesh().num_ranks(); ++r) {
      pointers.push_back(
          devices.emplace_back(backend::cpu::MakeCpuDevice(r, 1)).get());
    }
    store::LoadTransaction transaction(plan, pointers);
    ValueOrDie(transaction.Read({}));
    weights = ValueOrDie(std::move(transaction).Commit());
  }
  std::vector<std::unique_ptr<backend::Device>> devices;
  std::shared_ptr<const store::WeightVersion> weights;
};

// Two meshes of one shape have plans of one contract; their epochs differ.
TEST(Mesh, F2_NoExecutorWithoutItsPreflight) {
  const Plan plan = DemoPlan("ep=2");
  const Plan again = DemoPlan("ep=2");
  ASSERT_EQ(plan->contract_id(), again->contract_id());
  const Loaded loaded(plan);
  const auto make = [&](const plan::ModelPlan& second) {
    const std::vector<step::SealedProgram> programs[] = {
        SealAll(*plan, Rank(0)), SealAll(second, Rank(1))};
    std::vector<exec::RankSetup> ranks;
    for (int r = 0; r < 2; ++r) {
      ranks.push_back({.device = backend::cpu::MakeCpuDevice(r, 1),
                       .programs = programs[r]});
    }
    return exec::MeshExecutor::Make(*plan, loaded.weights, std::move(ranks));
  };
  EXPECT_TRUE(make(*plan).has_value());
  const auto mixed = make(*again);
  ASSERT_FALSE(mixed.has_value());
  EXPECT_TRUE(
      std::get<Rejections>(mixed.error()).Has(RejectionCode::kEpochStale));
}

TEST(Mesh, T4_WeightsOfOtherBytesAreNotBound) {
  const Plan plan = DemoPlan("ep=2");
  const std::vector<step::SealedProgram> programs = SealAll(*plan, Rank(0));
  // All experts mapped, none in the rank's own memory.
  const Loaded other(DemoPlan("single"));
  const auto device = backend::cpu::MakeCpuDevice(0, 1);
  const exec::Arenas arenas = ValueOrDie(
      exec::Arenas::Make(device.get(), {}, other.weights->generation()));
  const auto bound =
      exec::Bind(programs.front(), *plan, other.weights, arenas, nullptr);
  ASSERT_FALSE(bound.has_value());
  bool said = false;
  for (const Rejection& rejection :
       std::get<Rejections>(bound.error()).list()) {
    said |= rejection.code == RejectionCode::kBindArenaTooSmall &&
            rejection.where == Name(MemoryClass::kExperts);
  }
  EXPECT_TRUE(said) << Describe(bound.error());
}

TEST(Mesh, P3_SplitExpertsHoldTheirShardOfEveryExpert) {
  const Plan one = DemoPlan("single");
  const Plan two = DemoPlan("tp=2");
  const Loaded whole(one);
  const Loaded split(two);
  const LayerId layer(0);
  const plan::ExpertView& view = *one->experts().View(layer, Rank(0));
  const int64_t shard = view->width / 2;
  const auto row = static_cast<size_t>(view->hidden) * 2;  // bf16
  const auto at = [](const void* data, int64_t element) {
    return static_cast<const std::byte*>(data) + 2 * element;
  };
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(
        split.weights->memory_bytes(Rank(r), MemoryClass::kExperts).value() * 2,
        one->experts().ExpertBytes(Rank(0)).value());
    const auto* want = whole.weights->Experts(layer, Rank(0));
    const auto* got = split.weights->Experts(layer, Rank(r));
    ASSERT_EQ(got->experts.size(), want->experts.size());
    for (size_t e = 0; e < want->experts.size(); ++e) {
      const backend::ExpertPointers& from = want->experts[e];
      const backend::ExpertPointers& to = got->experts[e];
      const int64_t first = r * shard;
      const auto rows = static_cast<size_t>(shard) * row;
      EXPECT_EQ(std::memcmp(to.gate, at(from.gate, first * view->hidden), rows),
                0);
      EXPECT_EQ(std::memcmp(to.up, at(from.up, first * view->hidden), rows), 0);
      for (int64_t h = 0; h < view->hidden; ++h) {
        ASSERT_EQ(std::memcmp(at(to.down, h * shard),
                              at(from.down, h * view->width + first),
                              2 * static_cast<size_t>(shard)),
                  0)
            << "rank " << r << ", expert " << e << ", row " << h;
      }
    }
  }
}

class ReductionCounter final : public exec::TapObserver {
 public:
  void OnStep(std::string_view kind, std::span<const exec::TapBuffer>,
              int64_t) override {
    steps += 1;
    reductions += kind == "all_reduce" ? 1 : 0;
  }
  int steps = 0;
  int reductions = 0;
};

// Rank 1's page table is damaged, so that it refuses a call that rank 0 runs.
TEST(Mesh, X5_AFailedRankStopsTheOthersUntilAReset) {
  ReductionCounter first;
  ReductionCounter second;
  RunningMesh mesh(Demo(), "ep=2", Options(), {&first, &second});
  const std::vector<int32_t> prompt = {5, 77, 1024, 9, 300};
  const std::vector<float> answer = mesh.Run(prompt, 3);
  ASSERT_GT(first.reductions, 0);

  const auto decode = [&] {
    const int64_t position = mesh.state().length(SequenceSlot(0)) - 1;
    const std::vector<exec::RowInput> rows = {
        {1, 0, static_cast<int32_t>(position)}};
    const std::vector<backend::SamplingRow> sampling = {{.id_bound = 4096}};
    return mesh.executor().Decode(rows, sampling);
  };
  mesh.executor().programs(Rank(1)).page_table()[0] = -1;
  first = second = {};
  const auto failed = decode();
  ASSERT_FALSE(failed.has_value());
  const auto* why = std::get_if<Rejections>(&failed.error());
  ASSERT_NE(why, nullptr) << "not the reason of the rank that failed: "
                          << Describe(failed.error());
  EXPECT_TRUE(why->Has(RejectionCode::kRequestInvalid));
  EXPECT_EQ(second.steps, 0);
  EXPECT_EQ(first.reductions, 0) << "went on after a meeting that failed";

  mesh.executor().programs(Rank(1)).page_table()[0] =
      mesh.executor().programs(Rank(0)).page_table()[0];
  const auto refused = decode();
  ASSERT_FALSE(refused.has_value()) << "a step before the reset";
  EXPECT_EQ(std::get<Failure>(refused.error()).kind, FailureKind::kState);

  mesh.executor().Reset();
  mesh.state().Reset();
  EXPECT_EQ(mesh.Run(prompt, 3), answer);
}

}  // namespace
}  // namespace signet::testing
