#pragma once
// The ranks of a mesh in lockstep: one driver a rank, each a thread of this
// process with a device, arenas and programs of its own; collectives are
// rendezvous of the drivers. The mesh of one is the same with no other driver.
// With groups of processes only some of the ranks run here, and every process
// makes the same calls. One thread drives a MeshExecutor (it is the driver of
// the first rank that runs here).

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "collective/rank_groups.h"
#include "exec/executor.h"
#include "exec/program_set.h"
#include "exec/sequence_state.h"
#include "plan/model_plan.h"
#include "step/program.h"
#include "store/weight_version.h"

namespace signet::exec {

/// What one rank brings.
struct RankSetup {
  std::unique_ptr<backend::Device> device;  // null: runs in another process
  std::span<const step::SealedProgram> programs;  // of this rank, read once
  TapObserver* observer = nullptr;                // may be null
};

/// The groups of a rank, with memory of its device, which outlives them.
using MakeGroups =
    std::function<Result<std::unique_ptr<collective::RankGroups>>(
        backend::Device& device)>;

class MeshExecutor {
 public:
  /// The preflight of F2 over all ranks, then arenas and bound programs of
  /// those that run here; no rank launches anything. One setup a rank, in rank
  /// order. `make_groups` gives those of the one rank that runs here; empty
  /// when all do: then the ranks meet as threads, with `deadline`.
  static Result<std::unique_ptr<MeshExecutor>> Make(
      const plan::ModelPlan& plan,
      std::shared_ptr<const store::WeightVersion> weights,
      std::vector<RankSetup> ranks, const MakeGroups& make_groups = {},
      std::chrono::milliseconds deadline = std::chrono::seconds(30));
  ~MeshExecutor();
  MeshExecutor(const MeshExecutor&) = delete;
  MeshExecutor& operator=(const MeshExecutor&) = delete;

  int num_ranks() const;
  /// The empty sequences of the plan's slots on the ranks that run here, whose
  /// page tables they keep equal; this must outlive them.
  SequenceState MakeSequences(const plan::ModelPlan& plan);
  /// `rank` runs here.
  ProgramSet& programs(Rank rank);
  /// The first that does.
  Rank first_here() const;

  /// One call on every rank: the decode bucket or prefill chunk that
  /// ProgramSet chooses for `rows`; returns the program of the first rank
  /// here, whose outputs are valid until the next call. On an error the group
  /// is poisoned (X5): every call fails until Reset.
  Result<const BoundProgram*> Decode(
      std::span<const RowInput> rows,
      std::span<const backend::SamplingRow> sampling);
  /// `rest`: tokens of the prompt that are left, these rows included.
  Result<const BoundProgram*> Prefill(
      int64_t rest, std::span<const RowInput> rows,
      std::span<const backend::SamplingRow> sampling);
  /// The same calls on a mesh of one, launch by launch: what the program that
  /// is chosen is made of, and the times of it (Executor::Profile).
  struct CallProfile {
    const BoundProgram* program;
    Executor::LaunchTimes times;
  };
  Result<CallProfile> Profile(plan::ShapeKind kind, int64_t rows_wanted,
                              std::span<const RowInput> rows,
                              std::span<const backend::SamplingRow> sampling);
  /// After an error: the ranks may run again; sequences begin anew.
  void Reset();

 private:
  struct State;
  explicit MeshExecutor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace signet::exec
