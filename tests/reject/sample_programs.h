#pragma once
// Plans of the smallest checkpoints and their lowered programs: what every test
// of refusals starts from. Made once a process; the checkpoints hold zeros.

#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "plan/model_plan.h"
#include "step/program.h"

namespace signet::testing {

enum class Sample {
  kIndexed,           // a routed model, one decode row: the indexed grammar
  kGrouped,           // a prefill chunk of it: the grouped grammar
  kDense,             // a dense model, decode
  kBlock,             // one routed block behind its router, indexed
  kPrecomputedBlock,  // one routed block with given routes, grouped
};

std::string_view Name(Sample sample);

const plan::ModelPlan& PlanOf(Sample sample);

/// A fresh copy; it seals.
step::ProgramDraft DraftOf(Sample sample);

/// The plan of any config, on one CPU rank, over a checkpoint of zeros.
std::shared_ptr<const plan::ModelPlan> MakePlan(
    const nlohmann::json& config, const plan::PlanOptions& options);

}  // namespace signet::testing
