#pragma once
// How much memory the groups of a rank hold for what arrives from ranks of
// other processes: one reservation of class communicator, planned and made
// alike (contract P4). Ranks of one process read each other and hold none.
// Pure; any thread.

#include <cstdint>

#include "base/bytes.h"
#include "collective/world.h"
#include "topology/mesh.h"

namespace signet::collective {

inline constexpr uint64_t kStagingAlignment = 64;

/// Of one group, a multiple of the alignment.
Bytes GroupStaging(int members, const MeetingSizes& sizes);
/// Of all groups of a rank, one after another in the order of the axes.
Bytes RankStaging(const topology::Mesh& mesh, const AxisSizes& sizes);

}  // namespace signet::collective
