#pragma once
// From when to when each buffer holds something that matters.

#include <cstdint>

#include "base/id.h"
#include "step/program.h"

namespace signet::step::rules {

/// Steps, inclusive; the end of the program counts as one more step, after the
/// last. `first` > `last`: no step touches the buffer.
struct Lifetime {
  int64_t first;
  int64_t last;
};

/// A work buffer lives from its first to its last operand, outputs to the end;
/// all other kinds for the whole program.
IdVector<BufferId, Lifetime> LifetimesOf(const ProgramDraft& draft);

}  // namespace signet::step::rules
