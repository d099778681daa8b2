#pragma once
// Runs bound programs: writes the run-time scalars of a call, launches, and
// reports the sticky flag. Assumes sealed; the only holder of LaunchKey
// (contract X1). One thread drives an Executor. A call allocates nothing, takes
// no lock and hashes nothing (X6).

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "collective/rank_groups.h"
#include "exec/bound_program.h"
#include "exec/program_set.h"

namespace signet::exec {

/// One live row of a call.
struct RowInput {
  int32_t id;
  int32_t slot;
  int32_t position;
};

/// The inputs of a routed block alone.
struct BlockInputs {
  std::span<const float> x;              // [live, H]
  std::span<const int32_t> route_ids;    // [live, K], precomputed routes
  std::span<const float> route_weights;  // [live, K], precomputed routes
  int64_t live = 0;
};

class Executor {
 public:
  /// `device` must outlive the executor and be that of the arenas; `groups`,
  /// which may be null, gives signs of life between launches.
  explicit Executor(backend::Device* device,
                    collective::RankGroups* groups = nullptr)
      : device_(device), groups_(groups) {}

  /// Records the launches of every program of a set that has no observer, so
  /// that a call is one launch where the device replays. Failure: kDevice.
  Result<void> Record(ProgramSet& programs);
  /// One call of a model program. `rows`: 1 ... B of them; a prefill shape
  /// wants one slot and consecutive positions, a decode shape distinct slots.
  /// `sampling`: one a logits row. Everything is range-checked before the
  /// first launch (kRequestInvalid). Failure kNumeric when a routed block or
  /// the sampling met non-finite numbers: state is then undefined until the
  /// sequences are reset.
  Result<void> Run(const BoundProgram& program, std::span<const RowInput> rows,
                   std::span<const backend::SamplingRow> sampling);
  /// Seconds.
  struct LaunchTimes {
    std::vector<double> launches;  // of each of program.launches()
    double nothing = 0;            // of no launch: what timing adds to each
    /// Of one routed block where those of all layers run after one another;
    /// unset where they are more launches than one each.
    std::optional<double> block_in_a_row;
  };
  /// The same call, launch by launch, timed; an observer is told nothing. For
  /// programs of one rank.
  Result<LaunchTimes> Profile(const BoundProgram& program,
                              std::span<const RowInput> rows,
                              std::span<const backend::SamplingRow> sampling);
  /// One call of a routed block; the result is in io().block_output.
  Result<void> RunBlock(const BoundProgram& program, const BlockInputs& inputs);

 private:
  // Checks a call and writes its inputs.
  Result<void> Prepare(const BoundProgram& program,
                       std::span<const RowInput> rows,
                       std::span<const backend::SamplingRow> sampling);
  void FeedTables(const BoundProgram& program);
  Result<std::optional<double>> TimeBlocks(const BoundProgram& program);
  void Enqueue(const BoundProgram& program);
  void EnqueueInLanes(const BoundProgram& program);
  // One launch a step, each shown to the observer.
  Result<void> LaunchSteps(const BoundProgram& program, int64_t live);
  void Show(const BoundProgram& program, size_t step, int64_t live);
  Result<void> LaunchAll(const BoundProgram& program, int64_t live);
  backend::Device* device_;
  collective::RankGroups* groups_;
  std::vector<std::vector<std::byte>> looks_;  // what observers are shown
};

}  // namespace signet::exec
