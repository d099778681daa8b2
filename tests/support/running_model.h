#pragma once
// A checkpoint opened, planned, sealed, loaded and bound on one device, with an
// observer if wanted: what tests of the rooms below `engine` drive. Failures
// end the test with the error's text.

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

/// What a model runs on, and how.
struct RunsOn {
  std::unique_ptr<backend::Device> device;
  exec::TapObserver* observer = nullptr;  // must outlive the model
  /// Whether its programs are recorded, as the engine's are.
  bool recorded = false;
  /// Whether a call that fails is kept as `failure` and does not end the test.
  bool keeps_failure = false;
};

class RunningModel {
 public:
  /// On the CPU. `observer` may be null and must outlive the model.
  RunningModel(const std::filesystem::path& folder,
               const plan::PlanOptions& options, exec::TapObserver* observer,
               int threads = 2);
  RunningModel(const std::filesystem::path& folder,
               const plan::PlanOptions& options, RunsOn runs_on);

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
  /// One decode step of several slots; returns the logits [slots, V].
  std::vector<float> Decode(const std::vector<SequenceSlot>& slots,
                            const std::vector<int32_t>& ids);
  /// How the rows of later calls draw; the position and the bound of ids are
  /// those of the row. Greedy at first.
  void DrawAs(const backend::SamplingRow& row) { drawing_ = row; }
  /// The token the last call drew for its row `row`.
  int32_t Sampled(size_t row) const { return last_->io().sampled[row]; }

  /// Of the first call that failed and was kept; else empty.
  const std::string& failure() const { return failure_; }

  /// Bytes of a state arena, for comparison.
  std::vector<std::byte> StateBytes(MemoryClass memory_class) const;

 private:
  backend::SamplingRow Drawing(int64_t position) const;
  void Run(const exec::BoundProgram& program,
           const std::vector<exec::RowInput>& rows,
           const std::vector<backend::SamplingRow>& sampling);
  // Of the first `rows` rows of a call just run.
  std::vector<float> Logits(const exec::BoundProgram& program,
                            size_t rows) const;

  std::shared_ptr<const plan::ModelPlan> plan_;
  std::unique_ptr<backend::Device> device_;
  std::vector<step::SealedProgram> sealed_;
  std::shared_ptr<const store::WeightVersion> weights_;
  std::unique_ptr<exec::ProgramSet> programs_;
  std::unique_ptr<exec::Executor> executor_;
  std::unique_ptr<exec::SequenceState> state_;
  const exec::BoundProgram* last_ = nullptr;
  backend::SamplingRow drawing_;
  bool keeps_failure_;
  std::string failure_;
};

}  // namespace signet::testing
