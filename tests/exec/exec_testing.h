#pragma once
// Checkpoints, blocks and checks that the tests of loading, binding and
// executing share.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "exec/arenas.h"
#include "exec/bound_program.h"
#include "exec/executor.h"
#include "plan/model_plan.h"
#include "step/program.h"
#include "support/running_model.h"

namespace signet::testing {

/// A tiny MoE checkpoint with `experts` experts, `top_k` of them a token; made
/// once, gone with the program.
std::filesystem::path MoeCheckpoint(int experts, int top_k);

/// A copy of it, to be damaged.
std::filesystem::path CopyOfMoeCheckpoint(const std::string& name);

/// Files of a checkpoint that hold weights.
std::vector<std::filesystem::path> WeightFiles(
    const std::filesystem::path& folder);

/// Whether `error` refuses with this code and no other; prints it if not.
bool RefusesWith(const Error& error, RejectionCode code);
/// Whether `error` is a failure of this kind; prints it if not.
bool FailsWith(const Error& error, FailureKind kind);

/// One routed block of layer 0 of a model, with arenas of its own.
class RunningBlock {
 public:
  /// `model` lends its plan, weights and device, and must outlive the block.
  RunningBlock(RunningModel* model, plan::ProgramShape shape,
               step::RouterKind router);
  RunningBlock(const RunningBlock&) = delete;
  RunningBlock& operator=(const RunningBlock&) = delete;

  /// The output rows [live, H].
  Result<std::vector<float>> Run(const exec::BlockInputs& inputs);
  const exec::BoundProgram& program() const { return *program_; }
  exec::Arenas& arenas() { return arenas_; }

 private:
  exec::Executor executor_;
  step::SealedProgram sealed_;
  exec::Arenas arenas_;
  std::optional<exec::BoundProgram> program_;
};

}  // namespace signet::testing
