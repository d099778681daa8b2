#pragma once
// A second order of launches on one device. Those of the main lane run one
// after another, as do those of the side lane; where neither follows the other
// by a point, launches of both may overlap in time.

#include <cstddef>

#include "backend/kernels.h"
#include "backend/launch_key.h"

namespace signet::backend {

enum class Lane { kMain, kSide };

/// Used only while a program is recorded: from the first launch that follows
/// one of the main lane until the main lane follows the last one.
class SideLane {
 public:
  virtual ~SideLane() = default;
  /// Kernels that launch on the side lane, with memory of their own besides
  /// what a program gives them.
  virtual Kernels& kernels() = 0;
  /// Makes `point` of what `lane` has launched so far.
  virtual void Mark(LaunchKey, Lane lane, size_t point) = 0;
  /// What `lane` launches from here on starts when all that the other lane had
  /// launched at `point` is complete.
  virtual void Follow(LaunchKey, Lane lane, size_t point) = 0;
};

}  // namespace signet::backend
