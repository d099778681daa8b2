// X1: a launch key cannot be made outside the executor.
// expect: LaunchKey::LaunchKey\(\).* is private

#include "backend/kernels.h"

namespace signet {

void Launch(backend::Kernels& kernels, backend::LaunchKey key,
            const backend::NormArgs& args) {
#ifdef SIGNET_MUST_FAIL
  kernels.Norm(backend::LaunchKey(), args);
#endif
  kernels.Norm(key, args);
}

}  // namespace signet
