#pragma once
// A checkpoint on a mesh of CPU ranks, driven below the engine: what the mesh
// tests compare with the mesh of one.

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "exec/mesh_executor.h"
#include "exec/sequence_state.h"
#include "exec/tap.h"
#include "plan/model_plan.h"
#include "store/weight_version.h"

namespace signet::testing {

class RunningMesh {
 public:
  /// `observers` and `hooks` may be empty, else one a rank; the hooks see what
  /// the devices that run do, not those that load.
  RunningMesh(const std::filesystem::path& folder, std::string_view mesh,
              plan::PlanOptions options,
              std::vector<exec::TapObserver*> observers = {},
              std::vector<backend::FaultHook*> hooks = {});

  const plan::ModelPlan& plan() const { return *plan_; }
  const store::WeightVersion& weights() const { return *weights_; }
  exec::MeshExecutor& executor() { return *executor_; }

  /// The prompt into slot 0, then `tokens` greedy steps. Returns the logits of
  /// every decode step, one after another, of the first rank that has them.
  std::vector<float> Run(const std::vector<int32_t>& prompt, int tokens);
  /// The prompt into slot 0, then `forced` token by token, whatever is drawn.
  std::vector<float> RunForced(const std::vector<int32_t>& prompt,
                               const std::vector<int32_t>& forced);
  /// Tokens drawn by the last Run, of one rank.
  const std::vector<int32_t>& drawn(Rank rank) const {
    return drawn_[static_cast<size_t>(rank.value())];
  }
  exec::SequenceState& state() { return *state_; }
  std::vector<std::byte> StateBytes(Rank rank, MemoryClass memory_class);
  /// Sequences begin anew; after an error too.
  void Reset();

 private:
  void Prefill(const std::vector<int32_t>& prompt);
  void Decode(int32_t id, std::vector<float>& logits);
  void KeepDrawn(bool prefill, int64_t rows);
  std::shared_ptr<const plan::ModelPlan> plan_;
  std::vector<std::unique_ptr<backend::Device>> loaders_;
  std::vector<std::vector<step::SealedProgram>> programs_;
  std::shared_ptr<const store::WeightVersion> weights_;
  std::unique_ptr<exec::MeshExecutor> executor_;
  std::unique_ptr<exec::SequenceState> state_;
  std::vector<std::vector<int32_t>> drawn_;
};

}  // namespace signet::testing
