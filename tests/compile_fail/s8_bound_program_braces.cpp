// S8: braces are no key to a BoundProgram.
// expect: would use explicit constructor .*PassKey

#include "exec/bound_program.h"

namespace signet {

exec::BoundProgram Forge(exec::BoundProgram::Content content,
                         exec::BoundProgram bound) {
#ifdef SIGNET_MUST_FAIL
  return exec::BoundProgram({}, std::move(content));
#else
  return bound;
#endif
}

}  // namespace signet
