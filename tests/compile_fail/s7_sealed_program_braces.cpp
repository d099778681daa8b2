// S7: braces are no key to a SealedProgram.
// expect: would use explicit constructor .*PassKey

#include "step/program.h"
#include "step/seal.h"

namespace signet {

step::SealedProgram Forge(step::ProgramDraft draft,
                          const plan::ModelPlan& plan) {
#ifdef SIGNET_MUST_FAIL
  return step::SealedProgram({}, std::move(draft), plan.contract_id(), "");
#else
  return *step::Seal(std::move(draft), plan);
#endif
}

}  // namespace signet
