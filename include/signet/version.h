#pragma once

#include <string_view>

namespace signet {

/// `0.1.0`.
std::string_view Version();

}  // namespace signet
