#pragma once
// The state of one sequence of a running model in (layer, head, position)
// order, gathered from the arenas and through the page table.

#include <map>
#include <string>

#include "base/id.h"
#include "support/oracle_model.h"
#include "support/running_model.h"

namespace signet::testing {

/// By the names and shapes of the goldens: `recurrent.L` [Hv, dk, dv] and
/// `conv.L` [C, taps - 1] of a linear layer, `k.L` and `v.L` [T, n_kv, d] of a
/// full-attention layer, T the length of the sequence.
std::map<std::string, OracleTensor> SlotState(RunningModel& model,
                                              SequenceSlot slot);

}  // namespace signet::testing
