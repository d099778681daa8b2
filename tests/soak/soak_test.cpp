// Drawn models, meshes, prompts and chunkings: every legal mesh gives the bits
// of one rank, or comes near it where tp sums in another order; every other is
// refused by name (contract N2, N4, N5, M5, P0). In CI
// 300 combinations; `make soak` sets SIGNET_SOAK_COMBINATIONS. A failure prints
// the seed, which SIGNET_SOAK_SEED repeats.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "soak/drawn_model.h"
#include "support/mesh_state.h"
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

// Of the mesh of one, and the tokens that all others are fed.
struct Ran {
  std::vector<float> logits;
  std::vector<int32_t> drawn;
  std::map<std::string, std::vector<float>> state;
};

Ran RunSingle(const fs::path& folder, const plan::PlanOptions& options,
              const std::vector<int32_t>& prompt) {
  RunningMesh running(folder, "single", options);
  Ran ran = {.logits = running.Run(prompt, kTokens)};
  ran.drawn = running.drawn(Rank(0));
  ran.state = StateOf(running, 0);
  return ran;
}

void ExpectTheBitsOf(const Ran& single, RunningMesh& mesh,
                     const std::vector<int32_t>& prompt) {
  const std::vector<float> logits = mesh.Run(prompt, kTokens);
  ASSERT_EQ(logits.size(), single.logits.size());
  ASSERT_EQ(std::memcmp(logits.data(), single.logits.data(), 4 * logits.size()),
            0);
  for (int r = 0; r < mesh.plan().mesh().num_ranks(); ++r) {
    ASSERT_EQ(mesh.drawn(Rank(r)), single.drawn);
  }
  for (int64_t c = 0; c < mesh.plan().mesh().size(topology::Axis::kEp); ++c) {
    ASSERT_TRUE(StateOf(mesh, c) == single.state);
  }
}

// Whether rounding alone can be the difference. A near tie between two experts
// may turn on it, and then everything after differs: such runs are counted.
bool IsNear(const Ran& single, RunningMesh& mesh,
            const std::vector<int32_t>& prompt) {
  constexpr double kNear = 1e-3;
  std::vector<int32_t> forced = single.drawn;
  forced.pop_back();
  const std::vector<float> logits = mesh.RunForced(prompt, forced);
  EXPECT_EQ(logits.size(), single.logits.size());
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    difference += std::pow(double{logits[i]} - single.logits[i], 2);
    norm += std::pow(double{single.logits[i]}, 2);
  }
  return std::sqrt(difference) <= kNear * std::sqrt(norm);
}

// What is demanded of a mesh.
struct Verdict {
  bool legal;
  std::vector<RejectionCode> codes;  // any of them, when not legal
};

Verdict Expected(const model::ModelConfig& model,
                 const topology::MeshSpec& spec) {
  std::map<topology::Axis, int64_t> size = {{topology::Axis::kPp, 1},
                                            {topology::Axis::kTp, 1},
                                            {topology::Axis::kEp, 1}};
  for (const topology::AxisSize& axis : spec.axes()) {
    size[axis.axis] = axis.size;
  }
  const int64_t tp = size[topology::Axis::kTp];
  const int64_t ep = size[topology::Axis::kEp];
  const Verdict unsupported = {false, {RejectionCode::kMeshUnsupported}};
  if (size[topology::Axis::kPp] > static_cast<int64_t>(model.layers.size())) {
    return unsupported;
  }
  if (tp > 1 && ep > 1) return unsupported;
  if (ep > 1 && model.num_experts == 0) return unsupported;
  for (const int64_t cut :
       {model.num_heads, model.num_kv_heads, model.linear_key_heads,
        model.shared_width, model.dense_width}) {
    if (cut % tp != 0) return unsupported;
  }
  const bool experts_fit =
      model.num_experts == 0 || (model.expert_width % tp == 0 &&
                                 plan::FoldLanes(model.num_experts) % ep == 0);
  if (!experts_fit) return {false, {RejectionCode::kExpertsIndivisible}};
  return {true, {}};
}

// Every legal mesh of a model and some of the others, in any order.
std::vector<std::string> DrawMeshes(Draw& draw,
                                    const model::ModelConfig& model) {
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
  uint64_t cut = 0;  // over tp
  uint64_t far = 0;  // of those
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
    const Ran single = RunSingle(folder, options, prompt);
    const model::ModelConfig config = OpenManifest(folder)->config();
    for (const std::string& mesh : DrawMeshes(draw, config)) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", model " +
                   std::to_string(number) + ", mesh " + mesh + ", prompt of " +
                   std::to_string(prompt.size()) + ", chunks up to " +
                   std::to_string(options.prefill_chunks.back()) + "\n" +
                   model.config);
      const topology::Mesh built = CpuMesh(mesh);
      const Verdict verdict = Expected(config, built.spec());
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
      RunningMesh running(folder, mesh, options);
      if (built.size(topology::Axis::kTp) == 1) {
        ExpectTheBitsOf(single, running, prompt);
        if (::testing::Test::HasFailure()) return;
        ++equal;
      } else {
        ++cut;
        far += !IsNear(single, running, prompt);
      }
    }
    fs::remove_all(folder);
  }
  std::cout << combinations << " combinations: " << equal << " bitwise equal, "
            << cut << " over tp of which " << far
            << " took another route, the others refused\n";
  EXPECT_GT(equal, wanted / 3);
  EXPECT_LE(far * 20, cut) << "more than 5 % are not near";
}

}  // namespace
}  // namespace signet::testing
