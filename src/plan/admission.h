#pragma once
// What is supported, as one table (contract A2, M5): the cells of family x
// mesh x format that this build runs. `signet plan` consults it; anything
// outside is refused by name, never approximated.

#include "base/result.h"
#include "model/config.h"
#include "plan/plan_options.h"
#include "topology/mesh.h"

namespace signet::plan {

/// All reasons why the mesh or the options cannot be served.
Result<void> Admit(const model::ModelConfig& config, const topology::Mesh& mesh,
                   const PlanOptions& options);

}  // namespace signet::plan
