// X1: a load key cannot be made outside a load transaction.
// expect: LoadKey::LoadKey\(\).* is private

#include "backend/launch_key.h"

namespace signet {

backend::LoadKey Forge(backend::LoadKey key) {
#ifdef SIGNET_MUST_FAIL
  return backend::LoadKey();
#else
  return key;
#endif
}

}  // namespace signet
