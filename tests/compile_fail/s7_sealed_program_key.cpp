// S7: nobody but the sealer can make the key to a SealedProgram.
// expect: PassKey<Holder>::PassKey\(\).* is private

#include "step/program.h"
#include "step/seal.h"

namespace signet {

step::SealedProgram Forge(step::ProgramDraft draft,
                          const plan::ModelPlan& plan) {
#ifdef SIGNET_MUST_FAIL
  return step::SealedProgram(PassKey<step::Sealer>(), std::move(draft),
                             plan.contract_id(), "");
#else
  return *step::Seal(std::move(draft), plan);
#endif
}

}  // namespace signet
