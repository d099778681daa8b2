// X1: the executor runs bound programs; a sealed one is not enough.
// expect: cannot convert .*SealedProgram.* to .*BoundProgram

#include "exec/executor.h"
#include "step/program.h"

namespace signet {

Result<void> Run(exec::Executor& executor, const exec::BoundProgram& bound,
                 const step::SealedProgram& sealed) {
#ifdef SIGNET_MUST_FAIL
  return executor.Run(sealed, {}, {});
#else
  static_cast<void>(sealed);
  return executor.Run(bound, {}, {});
#endif
}

}  // namespace signet
