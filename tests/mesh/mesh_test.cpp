// Several CPU ranks against one (contract N2, N5, X3): tokens, logits and
// state, on the demo and on generated checkpoints.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>

#include "exec/preflight.h"
#include "support/mesh_state.h"
#include "support/running_mesh.h"
#include "support/running_model.h"
#include "support/temporary_folder.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {
namespace {

constexpr int kTokens = 24;

std::vector<int32_t> Prompt(int64_t vocab) {
  std::vector<int32_t> ids;
  for (int i = 0; i < 45; ++i) {
    ids.push_back(static_cast<int32_t>((i * 2654435761u >> 8) %
                                       static_cast<uint64_t>(vocab)));
  }
  return ids;
}

plan::PlanOptions Options() {
  return {.context = 128, .batch = 1, .prefill_chunks = {8, 32}};
}

std::filesystem::path Demo() {
  return std::filesystem::path(SIGNET_SOURCE_DIR) / "models/demo";
}

std::filesystem::path Tiny(const std::string& name) {
  const std::filesystem::path folder = TemporaryFolder() / ("mesh_" + name);
  if (!std::filesystem::exists(folder)) {
    ValueOrDie(WriteTinyCheckpoint(name, folder));
  }
  return folder;
}

void ExpectTheBitsOfOne(const std::filesystem::path& folder,
                        const std::vector<std::string>& meshes) {
  RunningMesh single(folder, "single", Options());
  const std::vector<int32_t> prompt = Prompt(single.plan().config().vocab);
  const std::vector<float> wanted = single.Run(prompt, kTokens);
  const auto wanted_state = StateOf(single, 0);
  for (const std::string& spec : meshes) {
    SCOPED_TRACE(spec);
    RunningMesh mesh(folder, spec, Options());
    const std::vector<float> got = mesh.Run(prompt, kTokens);
    ASSERT_EQ(got.size(), wanted.size());
    EXPECT_EQ(std::memcmp(got.data(), wanted.data(), 4 * got.size()), 0);
    for (int r = 0; r < mesh.plan().mesh().num_ranks(); ++r) {
      EXPECT_EQ(mesh.drawn(Rank(r)), single.drawn(Rank(0))) << "rank " << r;
    }
    for (int64_t c = 0; c < mesh.plan().mesh().size(topology::Axis::kEp); ++c) {
      // No NaN and no -0 where equality of floats is not equality of bits.
      EXPECT_TRUE(StateOf(mesh, c) == wanted_state) << "along ep at " << c;
    }
  }
}

double RelativeError(const std::vector<float>& got,
                     const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    difference += std::pow(double{got[i]} - want[i], 2);
    norm += std::pow(double{want[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

// Sums in another order are rounding alone; a sum lost or taken twice is not.
void ExpectNearOne(const std::filesystem::path& folder, const std::string& spec,
                   plan::TpExperts experts) {
  constexpr double kBound = 1e-4;
  RunningMesh single(folder, "single", Options());
  const std::vector<int32_t> prompt = Prompt(single.plan().config().vocab);
  const std::vector<float> wanted = single.Run(prompt, kTokens);
  std::vector<int32_t> forced = single.drawn(Rank(0));
  forced.pop_back();
  plan::PlanOptions options = Options();
  options.tp_experts = experts;
  RunningMesh mesh(folder, spec, options);
  EXPECT_LT(RelativeError(mesh.RunForced(prompt, forced), wanted), kBound);
  for (int r = 1; r < mesh.plan().mesh().num_ranks(); ++r) {
    EXPECT_EQ(mesh.drawn(Rank(r)), mesh.drawn(Rank(0)))
        << "one rank's token is not another's";
  }
  for (const auto& [name, state] : StateOf(single, 0)) {
    EXPECT_LT(RelativeError(StateOf(mesh, 0)[name], state), kBound) << name;
  }
}

TEST(Mesh, N2_TheDemoGivesTheSameBitsOnOneTwoFourAndEightRanks) {
  ExpectTheBitsOfOne(Demo(), {"ep=1", "ep=2", "ep=4", "ep=8"});
}

TEST(Mesh, N2_TwelveExpertsGiveTheSameBitsOnOneTwoAndFourRanks) {
  const std::filesystem::path model = Tiny("moe_awkward");
  ExpectTheBitsOfOne(model, {"ep=2", "ep=4"});
}

TEST(Mesh, N2_PerExpertFilesGiveTheSameBits) {
  const std::filesystem::path model = Tiny("moe_per_expert_text");
  ExpectTheBitsOfOne(model, {"ep=2", "ep=4"});
}

TEST(Mesh, N5_StagesGiveTheBitsOfOne) {
  ExpectTheBitsOfOne(Demo(), {"pp=2", "pp=3", "pp=2,ep=2"});
  // Stages of one layer: none or all of their layers have a KV cache.
  ExpectTheBitsOfOne(Tiny("moe_awkward"), {"pp=4", "pp=2,ep=4"});
  ExpectTheBitsOfOne(Tiny("dense_r3"), {"pp=2", "pp=4"});
}

TEST(Mesh, N5_SplitExpertsAndHeadsAreNearOne) {
  ExpectNearOne(Demo(), "tp=2", plan::TpExperts::kSplit);
  ExpectNearOne(Tiny("moe_four_kv"), "tp=4", plan::TpExperts::kSplit);
  ExpectNearOne(Tiny("moe_awkward"), "tp=2", plan::TpExperts::kSplit);
  ExpectNearOne(Tiny("dense_r3"), "tp=2", plan::TpExperts::kSplit);
  ExpectNearOne(Demo(), "pp=2,tp=2", plan::TpExperts::kSplit);
}

TEST(Mesh, N5_ExpertsOwnedOverTpAreNearOne) {
  ExpectNearOne(Demo(), "tp=2", plan::TpExperts::kOwned);
  ExpectNearOne(Tiny("moe_four_kv"), "tp=4", plan::TpExperts::kOwned);
  ExpectNearOne(Tiny("moe_four_kv"), "pp=2,tp=2", plan::TpExperts::kOwned);
}

TEST(Mesh, P0_ExpertsThatCannotBeOwnedEvenlyAreRefused) {
  const std::filesystem::path model = Tiny("moe_awkward");
  for (const char* spec : {"ep=8", "ep=3", "ep=5"}) {
    const auto plan =
        plan::MakeModelPlan(OpenManifest(model), CpuMesh(spec), Options());
    ASSERT_FALSE(plan.has_value()) << spec;
    EXPECT_TRUE(std::get<Rejections>(plan.error())
                    .Has(RejectionCode::kExpertsIndivisible));
  }
}

TEST(Mesh, M5_WhatAMeshDoesNotDivideIsRefusedByName) {
  const auto refused = [](const std::filesystem::path& model,
                          const char* spec) {
    const auto plan =
        plan::MakeModelPlan(OpenManifest(model), CpuMesh(spec), Options());
    return !plan.has_value() && std::get<Rejections>(plan.error())
                                    .Has(RejectionCode::kMeshUnsupported);
  };
  EXPECT_TRUE(refused(Demo(), "tp=2,ep=2"));
  EXPECT_TRUE(refused(Demo(), "pp=16"));
  EXPECT_TRUE(refused(Demo(), "tp=3"));
  EXPECT_TRUE(refused(Demo(), "tp=4")) << "of two kv heads";
  const std::filesystem::path dense = Tiny("dense_r3");
  EXPECT_TRUE(refused(dense, "ep=2"));
}

TEST(Mesh, P2_EveryRankHoldsItsExpertsAndNoMore) {
  RunningMesh single(Demo(), "single", Options());
  RunningMesh mesh(Demo(), "ep=4", Options());
  const Bytes total = single.plan().experts().ExpertBytes(Rank(0));
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(
        mesh.weights().memory_bytes(Rank(r), MemoryClass::kExperts).value() * 4,
        total.value());
    EXPECT_EQ(mesh.weights().memory_bytes(Rank(r), MemoryClass::kExperts),
              mesh.plan().experts().ExpertBytes(Rank(r)));
  }
}

// Counts the slots each rank computes, from the rows it wrote.
class SlotCounter : public exec::TapObserver {
 public:
  void OnStep(std::string_view kind, std::span<const exec::TapBuffer> written,
              int64_t live_rows) override {
    if (kind != "moe_scatter") return;
    for (const exec::TapBuffer& buffer : written) {
      if (!buffer.name.ends_with("inverse_perm")) continue;
      const auto* rows = static_cast<const int32_t*>(buffer.data);
      for (int64_t s = 0; s < buffer.shape[0]; ++s) slots += rows[s] >= 0;
    }
    rows_seen += live_rows;
  }
  int64_t slots = 0;
  int64_t rows_seen = 0;
};

TEST(Mesh, X3_TheRanksComputeEverySlotOnce) {
  std::vector<SlotCounter> counters(4);
  RunningMesh mesh(Demo(), "ep=4", Options(),
                   {&counters[0], &counters[1], &counters[2], &counters[3]});
  mesh.Run(Prompt(4096), 0);
  int64_t slots = 0;
  for (const SlotCounter& counter : counters) {
    slots += counter.slots;
    EXPECT_LT(counter.slots, counter.rows_seen * 4);
  }
  EXPECT_EQ(slots, counters[0].rows_seen * mesh.plan().config().top_k);
}

TEST(Mesh, X4_DirtyScratchOnEveryRankChangesNothing) {
  RunningMesh clean(Demo(), "ep=2", Options());
  const std::vector<float> wanted = clean.Run(Prompt(4096), 8);
  RunningMesh dirty(Demo(), "ep=2", Options());
  for (int r = 0; r < 2; ++r) {
    dirty.executor().programs(Rank(r)).arenas().Fill(MemoryClass::kWorkspace,
                                                     std::byte{0xff});
  }
  const std::vector<float> got = dirty.Run(Prompt(4096), 8);
  EXPECT_EQ(std::memcmp(got.data(), wanted.data(), 4 * got.size()), 0);
}

TEST(Mesh, F2_ProgramsOfAnotherRankAreRefusedBeforeAnyLaunch) {
  const auto plan = ValueOrDie(
      plan::MakeModelPlan(OpenManifest(Demo()), CpuMesh("ep=2"), Options()));
  const std::vector<step::SealedProgram> first = SealAll(*plan, Rank(0));
  const std::vector<step::SealedProgram> second = SealAll(*plan, Rank(1));
  EXPECT_TRUE(exec::Preflight(*plan, {first, second}).has_value());
  const auto swapped = exec::Preflight(*plan, {second, first});
  ASSERT_FALSE(swapped.has_value());
  EXPECT_TRUE(std::get<Rejections>(swapped.error())
                  .Has(RejectionCode::kProgramHeaderMismatch));
  EXPECT_FALSE(
      exec::Preflight(*plan, {first, std::span(second).first(1)}).has_value());
}

}  // namespace
}  // namespace signet::testing
