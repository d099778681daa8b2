// measure_bounds DEMO [POSITIONS [gpu]]: how far sides are apart whose sums run
// in another order, on the demo and on generated checkpoints: what
// src/evidence/bounds.h is written from (contract N5). Tensor-parallel ranks
// and one rank, on the CPU; with `gpu`, one GPU and the CPU. Prints a line a
// comparison, then twice the worst of each kind.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/devices.h"
#include "evidence/comparison.h"
#include "evidence/lockstep.h"
#include "evidence/mesh_side.h"
#include "model/synth.h"
#include "support/running_model.h"
#include "support/temporary_folder.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kSeeds = 5;
constexpr evidence::Bounds kNoBounds = {
    std::numeric_limits<double>::infinity(),
    std::numeric_limits<double>::infinity(),
    std::numeric_limits<double>::infinity()};

// The configs of the tests' checkpoints, each with other weights than theirs.
std::vector<fs::path> Checkpoints() {
  std::vector<std::string> names = TinyCheckpointNames();
  names.push_back("moe_four_kv");
  std::vector<fs::path> folders;
  for (const std::string& name : names) {
    const fs::path config = TemporaryFolder() / (name + ".json");
    std::ofstream(config) << TinyCheckpointConfig(name);
    for (int seed = 0; seed < kSeeds; ++seed) {
      const fs::path folder =
          TemporaryFolder() / fmt::format("{}_{}", name, seed);
      ValueOrDie(model::Synthesize({.config = config.string(),
                                    .folder = folder,
                                    .layers = {},
                                    .vocab = {},
                                    .seed = 1000 + static_cast<uint64_t>(seed),
                                    .threads = 2}));
      folders.push_back(folder);
    }
  }
  return folders;
}

evidence::SideSpec Spec(const char* mesh) {
  const topology::Mesh made = CpuMesh(mesh);
  evidence::SideSpec spec{made.spec(), {}};
  for (int r = 0; r < made.num_ranks(); ++r) {
    spec.devices.push_back(made.device(Rank(r)));
  }
  return spec;
}

void Widen(evidence::RelativeDifference& worst,
           const evidence::RelativeDifference& more) {
  worst.logits = std::max(worst.logits, more.logits);
  worst.residual = std::max(worst.residual, more.residual);
  worst.state = std::max(worst.state, more.state);
}

std::string Text(const evidence::RelativeDifference& of, double factor) {
  return fmt::format("residual {:.3g} state {:.3g} logits {:.3g}",
                     factor * of.residual, factor * of.state,
                     factor * of.logits);
}

class Measurement {
 public:
  explicit Measurement(int64_t positions) : positions_(positions) {}

  void Add(const fs::path& model) {
    const auto manifest = OpenManifest(model);
    for (const auto experts :
         {plan::TpExperts::kSplit, plan::TpExperts::kOwned}) {
      const bool dense = manifest->expert_groups().empty();
      if (dense && experts == plan::TpExperts::kOwned) continue;
      for (const char* mesh : {"tp=2", "tp=4"}) {
        AddMesh(model, manifest, mesh, experts);
      }
    }
  }

  // With inputs of products rounded in prefill, and without.
  void AddGpu(const fs::path& model) {
    const auto manifest = OpenManifest(model);
    const evidence::SideSpec gpu{
        ValueOrDie(topology::MeshSpec::Parse("single")),
        ValueOrDie(ChooseDevices("gpu", 1))};
    for (const int64_t chunk : {8, 64}) {
      const plan::PlanOptions options = {
          .context = 512, .prefill_chunks = {chunk}, .all_logits = true};
      Compare(model.filename().string(), manifest, gpu, options,
              fmt::format("gpu, chunks of {}", chunk));
    }
  }

  void Print() const {
    for (const auto& [kind, worst] : worst_) {
      fmt::print("twice the worst, {}: {}\n", kind, Text(worst, 2));
    }
  }

 private:
  void AddMesh(const fs::path& model,
               const std::shared_ptr<const model::Manifest>& manifest,
               const char* mesh, plan::TpExperts experts) {
    const plan::PlanOptions options = {.context = 512,
                                       .prefill_chunks = {8, 32},
                                       .all_logits = true,
                                       .tp_experts = experts};
    const bool has_experts = !manifest->expert_groups().empty();
    Compare(fmt::format("{} {}", model.filename().string(), mesh), manifest,
            Spec(mesh), options,
            std::string(!has_experts ? Name(plan::Parallelism::kSingle)
                                     : Name(experts == plan::TpExperts::kOwned
                                                ? plan::Parallelism::kOwned
                                                : plan::Parallelism::kSplit)));
  }

  // `other` beside one CPU rank.
  void Compare(const std::string& name,
               const std::shared_ptr<const model::Manifest>& manifest,
               const evidence::SideSpec& other_spec,
               const plan::PlanOptions& options, const std::string& kind) {
    const auto single =
        ValueOrDie(MakeSidePlan(manifest, Spec("single"), options, {}));
    const auto cut = MakeSidePlan(manifest, other_spec, options, {});
    if (!cut) return;  // not every model can be cut so
    const auto first = ValueOrDie(
        evidence::MeshSide::Start(&single, evidence::Taps::kOn, 2, {}));
    const auto other = ValueOrDie(
        evidence::MeshSide::Start(&*cut, evidence::Taps::kOn, 2, {}));
    evidence::Feed feed{
        .prompt = {}, .other_prompt = {}, .positions = positions_};
    for (int i = 0; i < 45; ++i) {
      feed.prompt.push_back(static_cast<int32_t>((i * 2654435761u >> 8) % 250));
    }
    feed.other_prompt = feed.prompt;
    evidence::Comparison comparison(kNoBounds);
    int64_t faults = 0;
    ValueOrDie(RunLockstep(
        *first, other.get(), feed,
        [&](const evidence::CallRecord& a, const evidence::CallRecord* b) {
          faults += static_cast<int64_t>(b->faults.size());
          comparison.Add(a, *b);
        }));
    fmt::print("{} {}: {}, tokens {}/{}, excused {}, {}{}\n", name, kind,
               Text(comparison.relative(), 1), comparison.tokens_equal(),
               comparison.tokens_compared(), comparison.excused(),
               comparison.failed()
                   ? "FAILED at " + ToString(*comparison.failed())
                   : "within margins",
               faults > 0 ? fmt::format(", {} faults", faults) : "");
    Widen(worst_[kind], comparison.relative());
  }

  int64_t positions_;
  std::map<std::string, evidence::RelativeDifference> worst_;
};

}  // namespace
}  // namespace signet::testing

int main(int argc, char** argv) {
  const bool gpu = argc == 4 && std::string_view(argv[3]) == "gpu";
  if (argc < 2 || argc > 4 || (argc == 4 && !gpu)) {
    std::fprintf(stderr, "usage: measure_bounds DEMO [POSITIONS [gpu]]\n");
    return 2;
  }
  signet::testing::Measurement measurement(
      argc >= 3 ? std::max(45, std::atoi(argv[2])) : 128);
  const auto add = [&](const std::filesystem::path& model) {
    gpu ? measurement.AddGpu(model) : measurement.Add(model);
  };
  add(argv[1]);
  for (const auto& folder : signet::testing::Checkpoints()) add(folder);
  measurement.Print();
  return 0;
}
