#pragma once
// The named axes of a device mesh (contract M1).

#include <array>
#include <optional>
#include <string_view>

namespace signet::topology {

enum class Axis { kPp, kTp, kEp };

inline constexpr std::array<Axis, 3> kAllAxes = {Axis::kPp, Axis::kTp,
                                                 Axis::kEp};

constexpr std::string_view Name(Axis axis) {
  switch (axis) {
    case Axis::kPp:
      return "pp";
    case Axis::kTp:
      return "tp";
    case Axis::kEp:
      return "ep";
  }
  return "";
}

constexpr std::optional<Axis> ParseAxis(std::string_view name) {
  for (Axis axis : kAllAxes) {
    if (Name(axis) == name) return axis;
  }
  return std::nullopt;
}

}  // namespace signet::topology
