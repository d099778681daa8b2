// X1: braces are no launch key.
// expect: would use explicit constructor .*LaunchKey

#include "backend/kernels.h"

namespace signet {

void Launch(backend::Kernels& kernels, backend::LaunchKey key,
            const backend::NormArgs& args) {
#ifdef SIGNET_MUST_FAIL
  kernels.Norm({}, args);
#endif
  kernels.Norm(key, args);
}

}  // namespace signet
