#pragma once
// A plan for people and as JSON.

#include <string>

#include "engine/plan_impl.h"

namespace signet {

std::string PlanText(const Plan::Impl& plan);
/// Keys are listed in docs/json.md.
std::string PlanJson(const Plan::Impl& plan);

}  // namespace signet
