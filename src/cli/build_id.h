#pragma once

#include <string>

namespace signet::cli {

/// The linker's digest of this executable, in hexadecimal; `unknown` if the
/// executable has none.
std::string BuildId();

}  // namespace signet::cli
