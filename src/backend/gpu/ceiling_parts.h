#pragma once
// The launches of gpu_ceilings.cpp, on one stream.

#include <cstdint>

#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// Every byte of `bytes` (a multiple of 16) is read once, by `blocks` blocks
/// of kReadThreads. `sink` may be written to.
inline constexpr int kReadThreads = 1024;
Status LaunchRead(Stream stream, const void* data, uint64_t bytes, int blocks,
                  uint32_t* sink);

/// Fills with bf16 numbers, random in [-1, 1).
Status LaunchRandomBf16(Stream stream, void* data, uint64_t count,
                        uint32_t seed);

}  // namespace signet::backend::gpu
