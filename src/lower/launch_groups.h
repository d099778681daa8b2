#pragma once
// Which consecutive steps a backend may run as one launch (architecture,
// principle 6). Their buffers are laid out side by side, so that the steps may
// overlap in time; exec::Fuse proves that again from the layout. Pure.

#include <cstdint>
#include <span>
#include <vector>

#include "step/steps.h"

namespace signet::lower {

/// Steps [first, last] of one launch.
struct LaunchGroup {
  int64_t first;
  int64_t last;
};

/// The group of every step; groups are consecutive and cover the program.
std::vector<LaunchGroup> LaunchGroupsOf(std::span<const step::Step> steps);

}  // namespace signet::lower
