#include "exec/exec_testing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "lower/lower.h"
#include "model/synth.h"
#include "support/temporary_folder.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;

nlohmann::json MoeConfig(int experts, int top_k) {
  nlohmann::json config =
      nlohmann::json::parse(TinyCheckpointConfig("moe_awkward"));
  config["num_experts"] = experts;
  config["num_experts_per_tok"] = top_k;
  return config;
}

step::SealedProgram SealBlock(const plan::ModelPlan& plan,
                              const plan::ProgramShape& shape,
                              step::RouterKind router) {
  const plan::ExpertView* view = plan.experts().View(LayerId(0), Rank(0));
  return ValueOrDie(step::Seal(
      ValueOrDie(lower::RoutedBlock(plan, *view, shape, router)), plan));
}

}  // namespace

fs::path MoeCheckpoint(int experts, int top_k) {
  const fs::path folder =
      TemporaryFolder() / fmt::format("moe_{}_{}", experts, top_k);
  if (fs::exists(folder)) return folder;
  const fs::path config = folder.string() + ".json";
  std::ofstream(config) << MoeConfig(experts, top_k).dump();
  ValueOrDie(model::Synthesize({.config = config.string(),
                                .folder = folder,
                                .shard_bytes = uint64_t{64} << 10}));
  return folder;
}

fs::path CopyOfMoeCheckpoint(const std::string& name) {
  const fs::path folder = TemporaryFolder() / name;
  fs::remove_all(folder);
  fs::copy(MoeCheckpoint(8, 2), folder);
  return folder;
}

std::vector<fs::path> WeightFiles(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool RefusesWith(const Error& error, RejectionCode code) {
  const auto* rejections = std::get_if<Rejections>(&error);
  bool matches = rejections != nullptr;
  if (matches) {
    for (const Rejection& rejection : rejections->list()) {
      matches = matches && rejection.code == code;
    }
  }
  if (!matches) std::fprintf(stderr, "%s\n", Describe(error).c_str());
  return matches;
}

bool FailsWith(const Error& error, FailureKind kind) {
  const auto* failure = std::get_if<Failure>(&error);
  if (failure != nullptr && failure->kind == kind) return true;
  std::fprintf(stderr, "%s\n", Describe(error).c_str());
  return false;
}

RunningBlock::RunningBlock(RunningModel* model, plan::ProgramShape shape,
                           step::RouterKind router)
    : executor_(&model->device()),
      sealed_(SealBlock(model->plan(), shape, router)),
      arenas_(
          ValueOrDie(exec::Arenas::Make(&model->device(), sealed_.arena_bytes(),
                                        model->weights()->generation()))) {
  program_.emplace(ValueOrDie(
      exec::Bind(sealed_, model->plan(), model->weights(), arenas_, nullptr)));
}

Result<std::vector<float>> RunningBlock::Run(const exec::BlockInputs& inputs) {
  SIGNET_RETURN_IF_ERROR(executor_.RunBlock(*program_, inputs));
  const float* output = program_->io().block_output;
  return std::vector<float>(output,
                            output + inputs.live * program_->limits().hidden);
}

}  // namespace signet::testing
