#include "support/running_mesh.h"

#include <algorithm>
#include <span>

#include "backend/cpu/cpu_device.h"
#include "store/load_transaction.h"
#include "support/running_model.h"

namespace signet::testing {

RunningMesh::RunningMesh(const std::filesystem::path& folder,
                         std::string_view mesh, plan::PlanOptions options,
                         std::vector<exec::TapObserver*> observers,
                         std::vector<backend::FaultHook*> hooks)
    : plan_(ValueOrDie(
          plan::MakeModelPlan(OpenManifest(folder), CpuMesh(mesh), options))) {
  const int num_ranks = plan_->mesh().num_ranks();
  std::vector<backend::Device*> devices;
  for (int r = 0; r < num_ranks; ++r) {
    devices.push_back(
        loaders_.emplace_back(backend::cpu::MakeCpuDevice(r, 1)).get());
    programs_.push_back(SealAll(*plan_, Rank(r)));
  }
  store::LoadTransaction transaction(plan_, devices);
  ValueOrDie(transaction.Read({}));
  weights_ = ValueOrDie(std::move(transaction).Commit());
  std::vector<exec::RankSetup> ranks;
  for (int r = 0; r < num_ranks; ++r) {
    const auto index = static_cast<size_t>(r);
    ranks.push_back(
        {.device = backend::cpu::MakeCpuDevice(r, 1),
         .programs = programs_[index],
         .observer = observers.empty() ? nullptr : observers[index]});
    if (!hooks.empty()) ranks.back().device->set_fault_hook(hooks[index]);
  }
  executor_ =
      ValueOrDie(exec::MeshExecutor::Make(*plan_, weights_, std::move(ranks)));
  state_ =
      std::make_unique<exec::SequenceState>(executor_->MakeSequences(*plan_));
  drawn_.resize(static_cast<size_t>(num_ranks));
}

void RunningMesh::KeepDrawn(bool prefill, int64_t rows) {
  for (size_t r = 0; r < drawn_.size(); ++r) {
    exec::ProgramSet& programs =
        executor_->programs(Rank(static_cast<int32_t>(r)));
    const exec::BoundProgram& program =
        prefill ? programs.Prefill(rows) : programs.Decode(rows);
    drawn_[r].push_back(program.io().sampled[0]);
  }
}

std::vector<float> RunningMesh::Run(const std::vector<int32_t>& prompt,
                                    int tokens) {
  Prefill(prompt);
  std::vector<float> logits;
  for (int step = 0; step < tokens; ++step) Decode(drawn_[0].back(), logits);
  return logits;
}

std::vector<float> RunningMesh::RunForced(const std::vector<int32_t>& prompt,
                                          const std::vector<int32_t>& forced) {
  Prefill(prompt);
  std::vector<float> logits;
  for (const int32_t id : forced) Decode(id, logits);
  return logits;
}

void RunningMesh::Prefill(const std::vector<int32_t>& prompt) {
  const SequenceSlot slot(0);
  const auto vocab = static_cast<int32_t>(plan_->config().vocab);
  for (std::vector<int32_t>& ids : drawn_) ids.clear();
  size_t done = 0;
  while (done < prompt.size()) {
    const auto rest = static_cast<int64_t>(prompt.size() - done);
    const exec::BoundProgram& program =
        executor_->programs(Rank(0)).Prefill(rest);
    const int64_t live = std::min(rest, program.shape().rows);
    const int64_t first = state_->length(slot);
    state_->Extend(slot, live);
    std::vector<exec::RowInput> rows;
    for (int64_t i = 0; i < live; ++i) {
      rows.push_back({prompt[done + static_cast<size_t>(i)], 0,
                      static_cast<int32_t>(first + i)});
    }
    const std::vector<backend::SamplingRow> sampling = {{.id_bound = vocab}};
    ValueOrDie(executor_->Prefill(rest, rows, sampling));
    done += static_cast<size_t>(live);
    if (done == prompt.size()) KeepDrawn(/*prefill=*/true, rest);
  }
}

void RunningMesh::Decode(int32_t id, std::vector<float>& logits) {
  const SequenceSlot slot(0);
  const auto vocab = static_cast<int32_t>(plan_->config().vocab);
  const int64_t position = state_->length(slot);
  state_->Extend(slot, 1);
  const std::vector<exec::RowInput> rows = {
      {id, 0, static_cast<int32_t>(position)}};
  const std::vector<backend::SamplingRow> sampling = {{.id_bound = vocab}};
  ValueOrDie(executor_->Decode(rows, sampling));
  for (int r = 0; r < plan_->mesh().num_ranks(); ++r) {
    const float* begin = executor_->programs(Rank(r)).Decode(1).io().logits;
    if (begin == nullptr) continue;  // not of the last stage
    logits.insert(logits.end(), begin, begin + vocab);
    break;
  }
  KeepDrawn(/*prefill=*/false, 1);
}

void RunningMesh::Reset() {
  executor_->Reset();
  state_->Reset();
}

std::vector<std::byte> RunningMesh::StateBytes(Rank rank,
                                               MemoryClass memory_class) {
  const exec::Arenas& arenas = executor_->programs(rank).arenas();
  const std::byte* begin = arenas.data(memory_class);
  return {begin, begin + arenas.size(memory_class).value()};
}

}  // namespace signet::testing
