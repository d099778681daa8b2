// X1: a load key opens no step kernel.
// expect: cannot convert .*LoadKey.* to .*LaunchKey

#include "backend/kernels.h"

namespace signet {

void Launch(backend::Kernels& kernels, backend::LaunchKey key,
            backend::LoadKey load_key, const backend::NormArgs& args) {
#ifdef SIGNET_MUST_FAIL
  kernels.Norm(load_key, args);
#endif
  kernels.Norm(key, args);
  static_cast<void>(load_key);
}

}  // namespace signet
