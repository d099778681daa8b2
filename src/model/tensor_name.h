#pragma once
// What a file may call a tensor: something a message can show. Functions; any
// thread.

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace signet::model {

/// Names are a path of modules; no checkpoint has one a tenth as long.
inline constexpr size_t kMaxTensorNameBytes = 1024;

/// Neither empty nor too long, and without control characters.
inline bool IsTensorName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxTensorNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
         });
}

}  // namespace signet::model
