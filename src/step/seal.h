#pragma once
// The only maker of SealedProgram (contract S7).
//
// A sealed program is, for the plan it was sealed with and on its rank:
//   - the whole recipe of the model, or of one routed block: every weight once,
//     at its layer and place;
//   - made of operands whose dtypes, shapes, bases and sizes fit each step;
//   - free of reads before writes, of addends left unreduced or reduced twice,
//     and of live buffers that share bytes;
//   - within the planned arenas, and in the mesh's groups.
// It does not promise that the arenas exist or are large enough (exec::Bind
// checks that), that run-time scalars are in range (the executor does), nor
// that the other ranks run the matching program (mesh preflight).

#include "base/result.h"
#include "plan/model_plan.h"
#include "step/program.h"

namespace signet::step {

class Sealer {
 public:
  /// See step::Seal.
  static Result<SealedProgram> Seal(ProgramDraft draft,
                                    const plan::ModelPlan& plan);
};

}  // namespace signet::step
