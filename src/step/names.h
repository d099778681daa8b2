#pragma once
// One table a printed enum: the enumerators in order with their names.

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace signet::step {

template <typename E, size_t N>
struct NameTable {
  std::array<std::string_view, N> names;  // by enumerator value

  constexpr std::string_view Name(E value) const {
    return names[static_cast<size_t>(value)];
  }
  constexpr std::optional<E> Parse(std::string_view text) const {
    for (size_t i = 0; i < N; ++i) {
      if (names[i] == text) return static_cast<E>(i);
    }
    return std::nullopt;
  }
};

}  // namespace signet::step
