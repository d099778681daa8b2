// Drawn models, meshes, prompts and chunkings: every legal mesh gives the bits
// of one rank, every other is refused by name (contract N2, N4, M5, P0). In CI
// 300 combinations; `make soak` sets SIGNET_SOAK_COMBINATIONS. A failure prints
// the seed, which SIGNET_SOAK_SEED repeats.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "soak/drawn_model.h"
#include "support/running_mesh.h"
#include "support/running_model.h"
#include "support/temporary_folder.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kTokens = 4;
constexpr size_t kIllegalAModel = 2;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Ran {
  std::vector<float> logits;
  std::vector<std::vector<int32_t>> drawn;  // [rank]
  std::vector<std::byte> state;             // of rank 0
};

Ran RunOn(const fs::path& folder, const std::string& mesh,
          const plan::PlanOptions& options,
          const std::vector<int32_t>& prompt) {
  RunningMesh running(folder, mesh, options);
  Ran ran = {.logits = running.Run(prompt, kTokens)};
  for (int r = 0; r < running.plan().mesh().num_ranks(); ++r) {
    ran.drawn.push_back(running.drawn(Rank(r)));
  }
  for (const MemoryClass state : {MemoryClass::kKv, MemoryClass::kRecurrent}) {
    const std::vector<std::byte> bytes = running.StateBytes(Rank(0), state);
    ran.state.insert(ran.state.end(), bytes.begin(), bytes.end());
  }
  return ran;
}

// What is demanded of a mesh.
struct Verdict {
  bool legal;
  std::vector<RejectionCode> codes;  // any of them, when not legal
};

Verdict Expected(const DrawnModel& model, const topology::MeshSpec& spec) {
  int64_t ep = 1;
  for (const topology::AxisSize& axis : spec.axes()) {
    if (axis.axis == topology::Axis::kEp) {
      ep = axis.size;
    } else if (axis.size > 1) {
      return {false, {RejectionCode::kMeshUnsupported}};
    }
  }
  if (ep == 1) return {true, {}};
  if (model.dense) return {false, {RejectionCode::kMeshUnsupported}};
  if (plan::FoldLanes(model.experts) % ep == 0) return {true, {}};
  return {false, {RejectionCode::kExpertsIndivisible}};
}

// Every legal mesh of a model and some of the others, in any order.
std::vector<std::string> DrawMeshes(Draw& draw, const DrawnModel& model) {
  std::vector<std::string> meshes = AllMeshes();
  draw.Shuffle(meshes);
  size_t illegal = 0;
  std::erase_if(meshes, [&](const std::string& mesh) {
    const auto spec = ValueOrDie(topology::MeshSpec::Parse(mesh));
    return !Expected(model, spec).legal && ++illegal > kIllegalAModel;
  });
  return meshes;
}

TEST(Soak, N2_EveryLegalMeshAgreesAndEveryOtherIsRefused) {
  const uint64_t seed =
      FromEnvironment("SIGNET_SOAK_SEED", std::random_device{}());
  const uint64_t wanted = FromEnvironment("SIGNET_SOAK_COMBINATIONS", 300);
  std::cout << "seed " << seed << '\n';
  Draw draw(seed);
  uint64_t combinations = 0;
  uint64_t equal = 0;
  for (int number = 0; combinations < wanted; ++number) {
    const DrawnModel model = DrawModel(draw);
    const fs::path folder =
        TemporaryFolder() / ("drawn_" + std::to_string(number));
    WriteDrawn(model, folder);
    plan::PlanOptions options = {.context = 48, .batch = 1};
    options.page_tokens = draw.OneOf<int64_t>({4, 8, 16});
    options.prefill_chunks = draw.OneOf<std::vector<int64_t>>(
        {{1}, {2, 8}, {3, 7}, {4}, {8}, {16}, {5, 32}});
    std::vector<int32_t> prompt(1 + draw.Below(40));
    for (int32_t& id : prompt) {
      id = static_cast<int32_t>(draw.Below(static_cast<size_t>(model.vocab)));
    }
    const Ran single = RunOn(folder, "single", options, prompt);
    for (const std::string& mesh : DrawMeshes(draw, model)) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", model " +
                   std::to_string(number) + ", mesh " + mesh + ", prompt of " +
                   std::to_string(prompt.size()) + ", chunks up to " +
                   std::to_string(options.prefill_chunks.back()) + "\n" +
                   model.config);
      const topology::Mesh built = CpuMesh(mesh);
      const Verdict verdict = Expected(model, built.spec());
      const auto plan =
          plan::MakeModelPlan(OpenManifest(folder), built, options);
      ASSERT_EQ(plan.has_value(), verdict.legal);
      ++combinations;
      if (!verdict.legal) {
        bool named = false;
        for (const RejectionCode code : verdict.codes) {
          named |= std::get<Rejections>(plan.error()).Has(code);
        }
        ASSERT_TRUE(named) << Describe(plan.error());
        continue;
      }
      const Ran ran = RunOn(folder, mesh, options, prompt);
      ASSERT_EQ(ran.logits.size(), single.logits.size());
      ASSERT_EQ(std::memcmp(ran.logits.data(), single.logits.data(),
                            4 * single.logits.size()),
                0);
      for (const std::vector<int32_t>& drawn : ran.drawn) {
        ASSERT_EQ(drawn, single.drawn[0]);
      }
      ASSERT_TRUE(ran.state == single.state);
      ++equal;
    }
    fs::remove_all(folder);
  }
  std::cout << combinations << " combinations, " << equal
            << " legal and bitwise equal, the others refused\n";
  EXPECT_GT(equal, wanted / 3);
}

}  // namespace
}  // namespace signet::testing
