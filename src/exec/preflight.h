#pragma once
// What is compared between the ranks before any of them launches (contract
// F2): host only, all ranks, all reasons.

#include <span>
#include <vector>

#include "base/result.h"
#include "plan/model_plan.h"
#include "step/program.h"

namespace signet::exec {

/// `programs`: for each rank, in rank order, its sealed programs in the order
/// of the plan's shapes. Proves that every rank has a program of every shape
/// under one contract, and that the collectives of all ranks form one
/// schedule: met in the same order by the same groups with the same sizes.
Result<void> Preflight(
    const plan::ModelPlan& plan,
    const std::vector<std::span<const step::SealedProgram>>& programs);

}  // namespace signet::exec
