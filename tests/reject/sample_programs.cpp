#include "tests/reject/sample_programs.h"

#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "lower/lower.h"
#include "model/checkpoint_testing.h"
#include "model/manifest.h"

namespace signet::testing {
namespace {

template <typename T>
T Must(Result<T> result) {
  if (!result) {
    std::cerr << Describe(result.error()) << '\n';
    std::abort();
  }
  return *std::move(result);
}

plan::PlanOptions SmallOptions() {
  plan::PlanOptions options;
  options.context = 64;
  options.batch = 8;
  options.page_tokens = 16;
  options.decode_buckets = {1, 8};
  options.prefill_chunks = {6};
  return options;
}

// Widths that two ranks divide.
nlohmann::json EvenConfig() {
  nlohmann::json config = model::testing::TinyConfig(model::Family::kQwen35Moe);
  config["shared_expert_intermediate_size"] = 6;
  return config;
}

step::ProgramDraft Lower(Sample sample) {
  const plan::ModelPlan& plan = PlanOf(sample);
  const plan::ProgramShape decode = plan.shapes().front();
  const plan::ProgramShape prefill = plan.shapes().back();
  switch (sample) {
    case Sample::kIndexed:
    case Sample::kDense:
      return Must(lower::LowerModel(plan, decode, Rank(0)));
    case Sample::kGrouped:
      return Must(lower::LowerModel(plan, prefill, Rank(0)));
    case Sample::kBlock:
      return Must(lower::RoutedBlock(plan,
                                     *plan.experts().View(LayerId(1), Rank(0)),
                                     decode, step::RouterKind::kSoftmaxTopK));
    case Sample::kPrecomputedBlock:
      return Must(lower::RoutedBlock(plan,
                                     *plan.experts().View(LayerId(0), Rank(0)),
                                     prefill, step::RouterKind::kPrecomputed));
    case Sample::kOnGpu:
      return Must(lower::LowerModel(plan, decode, Rank(0)));
    case Sample::kRounded:
      return Must(lower::LowerModel(plan, prefill, Rank(0)));
    case Sample::kFirstStage:
      return Must(lower::LowerModel(plan, decode, Rank(0)));
    case Sample::kDraws:
      return Must(lower::LowerModel(plan, prefill, Rank(0)));
    case Sample::kSplit:
    case Sample::kLastStage:
      return Must(lower::LowerModel(plan, decode, Rank(1)));
  }
  std::abort();
}

}  // namespace

std::string_view Name(Sample sample) {
  switch (sample) {
    case Sample::kIndexed:
      return "Indexed";
    case Sample::kGrouped:
      return "Grouped";
    case Sample::kDense:
      return "Dense";
    case Sample::kBlock:
      return "Block";
    case Sample::kPrecomputedBlock:
      return "PrecomputedBlock";
    case Sample::kSplit:
      return "Split";
    case Sample::kDraws:
      return "Draws";
    case Sample::kFirstStage:
      return "FirstStage";
    case Sample::kLastStage:
      return "LastStage";
    case Sample::kOnGpu:
      return "OnGpu";
    case Sample::kRounded:
      return "Rounded";
  }
  return "";
}

const plan::ModelPlan& PlanOf(Sample sample) {
  static const std::shared_ptr<const plan::ModelPlan> routed = MakePlan(
      model::testing::TinyConfig(model::Family::kQwen35Moe), SmallOptions());
  static const std::shared_ptr<const plan::ModelPlan> dense = MakePlan(
      model::testing::TinyConfig(model::Family::kQwen35), SmallOptions());
  static const std::shared_ptr<const plan::ModelPlan> split =
      MakePlan(EvenConfig(), SmallOptions(), "tp=2");
  static const std::shared_ptr<const plan::ModelPlan> stages =
      MakePlan(EvenConfig(), SmallOptions(), "pp=2");
  static const std::shared_ptr<const plan::ModelPlan> gpu = [] {
    plan::PlanOptions options = SmallOptions();
    options.prefill_chunks = {12};
    return MakePlan(EvenConfig(), options, "single", "gpu");
  }();
  switch (sample) {
    case Sample::kOnGpu:
    case Sample::kRounded:
      return *gpu;
    case Sample::kDense:
      return *dense;
    case Sample::kSplit:
    case Sample::kDraws:
      return *split;
    case Sample::kFirstStage:
    case Sample::kLastStage:
      return *stages;
    default:
      return *routed;
  }
}

// The files are opened, so the folder need not outlive this call.
std::shared_ptr<const plan::ModelPlan> MakePlan(
    const nlohmann::json& config, const plan::PlanOptions& options,
    std::string_view spec, std::string_view backend) {
  const model::testing::TempFolder folder;
  auto checkpoint = std::make_shared<const model::Checkpoint>(
      Must(model::testing::WriteAndOpen(folder, config,
                                        model::testing::TensorsOf(config))));
  const topology::MeshSpec axes = Must(topology::MeshSpec::Parse(spec));
  std::vector<topology::DeviceIdentity> devices;
  for (int r = 0; r < axes.num_ranks(); ++r) {
    devices.push_back({.backend = std::string(backend),
                       .uuid = "machine/" + std::to_string(r),
                       .pci = "",
                       .architecture = ""});
  }
  const topology::Mesh mesh = Must(topology::Mesh::Make(
      axes, std::move(devices), topology::Emulation::kRefused));
  return Must(plan::MakeModelPlan(Must(model::BuildManifest(checkpoint)), mesh,
                                  options));
}

step::ProgramDraft DraftOf(Sample sample) { return Lower(sample); }

}  // namespace signet::testing
