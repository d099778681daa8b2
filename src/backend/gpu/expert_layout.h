#pragma once
// Where the matrices of a rank's experts lie, as far as one rule says it, for
// what finds them by rule: the copy engine. Host code.

#include <span>

#include "backend/views.h"

namespace signet::backend::gpu {

/// Matrices that a copy engine can find are 16-byte aligned and ascend.
ExpertLayout LayoutOf(std::span<const ExpertPointers> experts);

}  // namespace signet::backend::gpu
