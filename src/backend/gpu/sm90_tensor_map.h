#pragma once
// How Hopper's copy engine finds boxes of a matrix in memory: rows of 64 bf16,
// 128 bytes each, which it lays into shared memory as sm90_wgmma.cuh wants
// them. Host code; a launch hands maps over by value.

#include <cstdint>

#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// CUtensorMap, which only the driver's header names.
struct alignas(128) TensorMap {
  uint64_t opaque[16] = {};
};

/// Matrices of one shape, `apart` bytes from one to the next.
struct BF16Matrices {
  const void* data = nullptr;  // at a multiple of 16 bytes
  int64_t count = 1;
  int64_t apart = 0;  // a multiple of 16
  int64_t rows = 0;
  int64_t cols = 0;  // a multiple of 8
};

/// Boxes of 64 columns by `box_rows` rows, up to 256, of one matrix; zeros
/// stand for what lies past its rows and columns. Fails where the driver has no
/// such maps.
Status MakeTensorMap(const BF16Matrices& matrices, int box_rows,
                     TensorMap* map);

}  // namespace signet::backend::gpu
