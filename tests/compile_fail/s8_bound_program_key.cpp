// S8: nobody but the binder can make a BoundProgram.
// expect: PassKey<Holder>::PassKey\(\).* is private

#include "exec/bound_program.h"

namespace signet {

exec::BoundProgram Forge(exec::BoundProgram::Content content,
                         exec::BoundProgram bound) {
#ifdef SIGNET_MUST_FAIL
  return exec::BoundProgram(PassKey<exec::Binder>(), std::move(content));
#else
  return bound;
#endif
}

}  // namespace signet
