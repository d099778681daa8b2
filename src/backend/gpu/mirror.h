#pragma once
// Copies between a device's memory and its mirror, by a kernel that reads and
// writes pinned host memory where it lies: for the few bytes of a call that is
// faster than a copy engine, and it chains with the kernels around it.

#include <span>

#include "backend/device.h"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

enum class Direction { kToDevice, kToHost };

/// At most kMaxMirrorParts parts; hosts are pinned.
Status CopyMirrors(Stream stream, Direction direction,
                   std::span<const MirrorPart> parts);

}  // namespace signet::backend::gpu
