#pragma once
// Which launches of a recorded program may overlap: those that do not depend
// on each other go to two lanes of the device. The order of any two that touch
// the same memory stays, so that no bit changes.

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "backend/side_lane.h"

namespace signet::exec {

/// Where a launch goes.
struct LanePlace {
  backend::Lane lane = backend::Lane::kMain;
  /// The launch of the other lane, earlier in the program, that it starts
  /// after; that one is_followed.
  std::optional<size_t> follows;
  bool is_followed = false;
};

/// Whether the launch `later` must find `earlier` complete.
using Depends = std::function<bool(size_t later, size_t earlier)>;

/// A place for each of `count` launches. Each starts after all it depends on:
/// by the order of its lane, by what it follows, or by what these do. The last
/// one is complete only when all are.
std::vector<LanePlace> PlaceInLanes(size_t count, const Depends& depends);

}  // namespace signet::exec
