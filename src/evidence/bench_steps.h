#pragma once
// What a call makes the steps of a sealed program move and compute at least.
// Pure functions.

#include <cstdint>

#include "evidence/bench_traffic.h"
#include "step/program.h"

namespace signet::evidence {

/// The rows of a call.
struct CallRows {
  int64_t live = 0;
  int64_t end = 0;      // positions of the longest of its sequences
  double attended = 0;  // positions the rows attend to, all together
};

/// Weights and state that a step moves, and its sums of products. `experts`:
/// distinct ones met by the rows, of a step that multiplies experts; each row
/// meets `top_k` of them.
Cost CostOf(const step::Step& step, const step::SealedProgram& program,
            const CallRows& rows, double experts, int64_t top_k);

}  // namespace signet::evidence
