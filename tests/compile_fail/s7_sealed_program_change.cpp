// S7: a sealed program cannot be changed.
// expect: assignment of read-only|discards qualifiers|passing 'const

#include "step/program.h"

namespace signet {

void Change(step::SealedProgram& program, step::Step step) {
#ifdef SIGNET_MUST_FAIL
  program.steps().front() = std::move(step);
#else
  step = program.steps().front();
#endif
}

}  // namespace signet
