#pragma once
// A checkpoint opened, planned, sealed, loaded and bound on one CPU device,
// with an observer if wanted: what tests of the rooms below `engine` drive.
// Failures end the test with the error's text.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "backend/device.h"
#include "exec/executor.h"
#include "exec/program_set.h"
#include "exec/sequence_state.h"
#include "exec/tap.h"
#include "model/manifest.h"
#include "plan/model_plan.h"
#include "store/weight_version.h"

namespace signet::testing {

/// The value of `result`, or the end of the program with the error printed.
[[noreturn]] void Die(const Error& error);
template <typename T>
T ValueOrDie(Result<T> result) {
  if (!result) Die(result.error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

std::shared_ptr<const model::Manifest> OpenManifest(
    const std::filesystem::path& folder);

/// CPU ranks of this machine.
topology::Mesh CpuMesh(std::string_view spec = "single");

std::shared_ptr<const plan::ModelPlan> MakePlan(
    const std::filesystem::path& folder, const plan::PlanOptions& options);

/// Every shape of the plan, lowered and sealed for one rank.
std::vector<step::SealedProgram> SealAll(const plan::ModelPlan& plan,
                                         Rank rank = Rank(0));

class RunningModel {
 public:
  /// `observer` may be null and must outlive the model.
  RunningModel(const std::filesystem::path& folder,
               const plan::PlanOptions& options, exec::TapObserver* observer,
               int threads = 2);

  const plan::ModelPlan& plan() const { return *plan_; }
  exec::ProgramSet& programs() { return *programs_; }
  exec::SequenceState& state() { return *state_; }
  backend::Device& device() { return *device_; }
  const std::shared_ptr<const store::WeightVersion>& weights() const {
    return weights_;
  }

  /// Feeds ids to a slot as the engine does, in the chunks of the plan;
  /// returns the logits of the last row [V] (of every row with
  /// all_logits: [ids, V]).
  std::vector<float> Prefill(SequenceSlot slot,
                             const std::vector<int32_t>& ids);
  /// One greedy decode step of several slots; returns the logits [slots, V].
  std::vector<float> Decode(const std::vector<SequenceSlot>& slots,
                            const std::vector<int32_t>& ids);
  /// The token the last call drew for its row `row`.
  int32_t Sampled(size_t row) const { return last_->io().sampled[row]; }

  /// Bytes of a state arena, for comparison.
  std::vector<std::byte> StateBytes(MemoryClass memory_class) const;

 private:
  std::shared_ptr<const plan::ModelPlan> plan_;
  std::unique_ptr<backend::Device> device_;
  std::vector<step::SealedProgram> sealed_;
  std::shared_ptr<const store::WeightVersion> weights_;
  std::unique_ptr<exec::ProgramSet> programs_;
  std::unique_ptr<exec::Executor> executor_;
  std::unique_ptr<exec::SequenceState> state_;
  const exec::BoundProgram* last_ = nullptr;
};

}  // namespace signet::testing
