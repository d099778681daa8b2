#pragma once
// From a plan and its weights to the ranks that run in this process.

#include <memory>

#include "engine/engine_impl.h"
#include "exec/mesh_executor.h"

namespace signet {

/// A driver for each rank that runs here.
Result<std::unique_ptr<exec::MeshExecutor>> BindRanks(
    const Plan::Impl& made, const Engine::Impl& engine,
    std::shared_ptr<const store::WeightVersion> weights);

}  // namespace signet
