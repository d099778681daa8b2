#pragma once
// The state of a mesh in the order of the model: layer by layer, whole heads
// and channels, positions in order, wherever ranks and pages hold them.

#include <map>
#include <string>
#include <vector>

#include "support/running_mesh.h"

namespace signet::testing {

/// `k.3`, `v.3` [length, kv_heads, head_dim], `recurrent.0` [value_heads, dk,
/// dv], `conv.0` [channels, taps - 1] of slot 0. Of the ranks that replicate a
/// layer, those with this coordinate along ep.
std::map<std::string, std::vector<float>> StateOf(RunningMesh& mesh,
                                                  int64_t ep_coordinate);

}  // namespace signet::testing
