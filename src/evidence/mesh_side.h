#pragma once
// A side as the engine runs it: the sealed programs of a plan on a mesh of CPU
// ranks, with or without taps, one sequence in slot 0.

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "evidence/recorder.h"
#include "evidence/side.h"
#include "evidence/side_plan.h"
#include "evidence/state_map.h"
#include "exec/mesh_executor.h"
#include "exec/sequence_state.h"
#include "store/finite_scan.h"
#include "store/weight_version.h"

namespace signet::evidence {

enum class Taps { kOff, kOn };

class MeshSide final : public Side {
 public:
  /// Admits the plan's memory, loads, and binds every rank. `side` must outlive
  /// the result. `threads`: of all ranks. Only kSwapExperts acts here.
  static Result<std::unique_ptr<MeshSide>> Start(
      const SidePlan* side, Taps taps, int threads, std::optional<Fault> fault,
      store::Scan scan = store::Scan::kSensitive);

  Result<CallRecord> Prefill(std::span<const int32_t> rest) override;
  Result<CallRecord> Decode(int32_t id) override;
  CallRecord FinalState() override;

  const store::WeightVersion& weights() const { return *weights_; }

 private:
  explicit MeshSide(const SidePlan* side) : side_(side) {}
  const plan::ModelPlan& plan() const { return *side_->plan; }
  int num_ranks() const { return plan().mesh().num_ranks(); }
  // What runs next: a decode bucket or a prefill chunk for `rows`.
  struct Choice {
    plan::ShapeKind kind;
    int64_t rows;
  };
  const exec::BoundProgram& Bound(Rank rank, Choice choice);
  const step::SealedProgram& Sealed(Rank rank,
                                    const plan::ProgramShape& shape) const;
  // `ids` are the rows of the call.
  Result<CallRecord> Run(Choice choice, std::span<const int32_t> ids);
  void AddOutputs(Choice choice, CallRecord* record);
  void AddState(int64_t begin, CallRecord* record);

  const SidePlan* side_;
  // Members are destroyed in reverse: ranks, weights, then their devices.
  std::vector<std::unique_ptr<backend::Device>> loaders_;
  std::shared_ptr<const store::WeightVersion> weights_;
  std::vector<std::unique_ptr<Recorder>> recorders_;  // empty: no taps
  std::unique_ptr<exec::MeshExecutor> mesh_;
  std::optional<exec::SequenceState> state_;
  std::optional<StateGatherer> gatherer_;
};

}  // namespace signet::evidence
