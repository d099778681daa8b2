// S7: no view of a sealed program outlives it.
// expect: use of deleted function

#include "step/program.h"

namespace signet {

size_t Count(step::ProgramDraft draft, const plan::ModelPlan& plan) {
#ifdef SIGNET_MUST_FAIL
  return step::Seal(std::move(draft), plan)->steps().size() +
         (*step::Seal(std::move(draft), plan)).steps().size();
#else
  const Result<step::SealedProgram> sealed = step::Seal(std::move(draft), plan);
  return sealed->steps().size();
#endif
}

}  // namespace signet
