#pragma once
// Fusion below the seal (architecture, principle 6): consecutive launches that
// a backend can do as one, found by a table of patterns over their arguments.

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "exec/bound_program.h"

namespace signet::exec {

/// Whether `count` launches from `first` on touch disjoint memory wherever they
/// touch different buffers: then they may overlap in time.
using IsIndependent = std::function<bool(size_t first, size_t count)>;

/// A launch of `count` steps.
struct FusedLaunch {
  Launch launch;
  size_t count;
};

/// The same launches in the same order, independent runs of them replaced by
/// fused ones. For backends that offer backend::FusedKernels.
std::vector<FusedLaunch> Fuse(std::span<const Launch> launches,
                              const IsIndependent& is_independent);

}  // namespace signet::exec
