#pragma once
// The ranks of a loaded plan, ready to run with or without observers.

#include <memory>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "exec/mesh_executor.h"
#include "exec/sequence_state.h"
#include "exec/tap.h"
#include "plan/model_plan.h"
#include "step/program.h"
#include "store/weight_version.h"

namespace signet::evidence {

/// One device a rank, in rank order; those of CPU ranks have `threads` each.
/// Failure: kDevice.
Result<std::vector<std::unique_ptr<backend::Device>>> MakeDevices(
    const topology::Mesh& mesh, int threads);

/// Every rank on a device of its own with its share of `threads`.
/// `programs`: [rank][shape]. `observers`: one a rank, or empty.
Result<std::unique_ptr<exec::MeshExecutor>> StartRanks(
    const plan::ModelPlan& plan,
    const std::vector<std::vector<step::SealedProgram>>& programs,
    std::shared_ptr<const store::WeightVersion> weights, int threads,
    const std::vector<exec::TapObserver*>& observers);

}  // namespace signet::evidence
