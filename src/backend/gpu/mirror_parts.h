#pragma once
// The kernel behind mirror.h, for a .cpp that cannot see device code.

#include <cstdint>

#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

inline constexpr int kMirrorSlots = 8;

struct MirrorCopies {
  const unsigned char* from[kMirrorSlots] = {};
  unsigned char* to[kMirrorSlots] = {};
  uint64_t bytes[kMirrorSlots] = {};
  int count = 0;
};

Status LaunchMirrorCopies(Stream stream, const MirrorCopies& copies);

}  // namespace signet::backend::gpu
