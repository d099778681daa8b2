#pragma once
// How many fields an aggregate has, at compile time, so that a table over them
// can be proven complete.

#include <cstddef>
#include <tuple>
#include <type_traits>

namespace signet::exec {

namespace internal {

struct AnyField {
  template <typename T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};

}  // namespace internal

/// The most initialisers that T takes. T has no array and no base.
template <typename T, typename... Fields>
consteval size_t AggregateArity() {
  static_assert(std::is_aggregate_v<T>);
  if constexpr (requires { T{Fields{}..., internal::AnyField{}}; }) {
    return AggregateArity<T, Fields..., internal::AnyField>();
  } else {
    return sizeof...(Fields);
  }
}

/// Whether no two rows of a table of members name the same one.
template <typename... Rows>
consteval bool AreDistinctMembers(const std::tuple<Rows...>& table) {
  const auto same = [](const auto& a, const auto& b) {
    if constexpr (std::is_same_v<decltype(a.value), decltype(b.value)>) {
      return a.value == b.value;
    } else {
      return false;
    }
  };
  return std::apply(
      [&](const auto&... rows) {
        // Each row is the same as itself, and as no other.
        size_t matches = 0;
        const auto count = [&](const auto& row) {
          ((matches += same(row, rows) ? 1 : 0), ...);
        };
        (count(rows), ...);
        return matches == sizeof...(rows);
      },
      table);
}

}  // namespace signet::exec
