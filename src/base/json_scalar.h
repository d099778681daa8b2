#pragma once
// Which types are JSON values that hold no others. nlohmann::json of one is
// made and destroyed without the containers that json_tree.h is about.

#include <string_view>
#include <type_traits>

namespace signet {

/// A number, a truth value, text, null.
template <typename T>
concept JsonScalar = std::is_arithmetic_v<T> || std::is_null_pointer_v<T> ||
                     std::is_convertible_v<const T&, std::string_view>;

}  // namespace signet
