#pragma once
// JSON that came from outside: no duplicate key, no NUL, bounded nesting and
// size. nlohmann keeps the last of two equal keys, which would let two readers
// of one header see two different tensors. Functions; any thread.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "base/json_tree.h"

namespace signet::model {

/// Why a text was not taken.
struct JsonFault {
  std::string message;
  std::optional<std::string> duplicate_key;  // set: that key came twice
  int depth = 0;  // of the duplicate: 1 is the outermost object
};

/// Nesting deeper than this is refused.
inline constexpr int kMaxJsonDepth = 64;
/// Values of one text; a header of 500,000 tensors has fewer.
inline constexpr int64_t kMaxJsonValues = 5'000'000;

tl::expected<JsonTree, JsonFault> ParseStrictJson(std::string_view text);

/// `value` for a message: its JSON text, cut to a readable length.
std::string Shown(const nlohmann::json& value);

}  // namespace signet::model
