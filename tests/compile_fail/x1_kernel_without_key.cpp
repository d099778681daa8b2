// X1: no kernel runs without a key.
// expect: no matching function for call to .*Norm

#include "backend/kernels.h"

namespace signet {

void Launch(backend::Kernels& kernels, backend::LaunchKey key,
            const backend::NormArgs& args) {
#ifdef SIGNET_MUST_FAIL
  kernels.Norm(args);
#endif
  kernels.Norm(key, args);
}

}  // namespace signet
