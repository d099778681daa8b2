#pragma once
// What a GPU has left for the arenas and the driver's allowance of a plan.

#include <cstdint>

#include "base/bytes.h"

namespace signet {

/// What a GPU takes for its kernels when it starts, both lanes of it, beyond
/// the 64 MiB that the driver's allowance (plan::kDriverAllowance) holds.
inline constexpr Bytes kKernelScratch{uint64_t{448} << 20};

/// `free` bytes less that; nothing where it takes them all.
constexpr Bytes RoomOnGpu(Bytes free) {
  return free > kKernelScratch ? free - kKernelScratch : Bytes(0);
}

}  // namespace signet
