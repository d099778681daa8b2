#pragma once
// Plans of the smallest checkpoints and their lowered programs: what every test
// of refusals starts from. Made once a process; the checkpoints hold zeros.

#include <array>
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
  kSplit,             // tp=2: the second rank, decode
  kDraws,             // tp=2: the first rank, which samples, prefill
  kFirstStage,        // pp=2: decode
  kLastStage,         // pp=2: decode
  kOnGpu,             // a GPU, whose weights are its own: decode
  kRounded,           // a GPU, a chunk whose products read bf16
};

inline constexpr std::array kEverySample = {
    Sample::kIndexed, Sample::kGrouped,          Sample::kDense,
    Sample::kBlock,   Sample::kPrecomputedBlock, Sample::kSplit,
    Sample::kDraws,   Sample::kFirstStage,       Sample::kLastStage,
    Sample::kOnGpu,   Sample::kRounded};

std::string_view Name(Sample sample);

const plan::ModelPlan& PlanOf(Sample sample);

/// A fresh copy; it seals.
step::ProgramDraft DraftOf(Sample sample);

/// The plan of any config over a checkpoint of zeros. No device is touched.
std::shared_ptr<const plan::ModelPlan> MakePlan(
    const nlohmann::json& config, const plan::PlanOptions& options,
    std::string_view mesh = "single", std::string_view backend = "cpu");

}  // namespace signet::testing
