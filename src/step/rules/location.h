#pragma once
// How a refusal names a place in a program.

#include <cstddef>
#include <string>
#include <string_view>

#include "step/program.h"

namespace signet::step::rules {

/// `step 12 norm`.
std::string Locate(const ProgramDraft& draft, size_t step);
/// `step 12 norm, x = l0.residual`.
std::string Locate(const ProgramDraft& draft, size_t step,
                   std::string_view operand, BufferId id);
/// `buffer l0.residual`.
std::string Locate(const ProgramDraft& draft, BufferId id);

}  // namespace signet::step::rules
