#include "base/bytes.h"

#include <fmt/format.h>

#include <array>

namespace signet {

std::string HumanBytes(Bytes bytes) {
  if (bytes.overflowed()) return "more than 2^64 B";
  static constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB",
                                                        "TB"};
  double value = static_cast<double>(bytes.value());
  size_t unit = 0;
  while (value >= 1000.0 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes.value())
                   : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

}  // namespace signet
