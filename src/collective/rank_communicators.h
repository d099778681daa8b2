#pragma once
// The ends one rank holds: what Bind takes for it. Pointers into the groups,
// which outlive whatever is bound with them. A value; one rank's thread.

#include <array>
#include <cstddef>

#include "collective/communicator.h"
#include "topology/axis.h"

namespace signet::collective {

struct RankCommunicators {
  /// The rank's group along each axis; null for a group of one.
  std::array<Communicator*, topology::kAllAxes.size()> axes = {};
  /// Groups of two neighbouring pipeline stages: member 0 is the source of a
  /// band transfer, member 1 its target. Null where there is no such stage.
  Communicator* previous_stage = nullptr;  // this rank is the target
  Communicator* next_stage = nullptr;      // this rank is the source

  Communicator* Along(topology::Axis axis) const {
    return axes[static_cast<size_t>(axis)];
  }
};

}  // namespace signet::collective
