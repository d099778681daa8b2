#include "signet/version.h"

namespace signet {

std::string_view Version() { return SIGNET_VERSION; }

}  // namespace signet
