#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace signet::internal {

void CheckFailed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "signet: internal error at %s:%d: %s\n", file, line,
               what);
  std::abort();
}

}  // namespace signet::internal
