#pragma once
// S1: collectives where and only where the schedule has a row.

#include <vector>

#include "step/rules/routed_blocks.h"
#include "step/rules/rules.h"

namespace signet::step::rules {

/// Each schedule row of the program's layers is used once, in order, by a
/// collective of its kind and axis; the all-reduce of a routed block sums that
/// block's combine.
void CheckCollectives(const ProgramDraft& draft, const plan::ModelPlan& plan,
                      const std::vector<RoutedBlock>& blocks,
                      Findings& findings);

}  // namespace signet::step::rules
