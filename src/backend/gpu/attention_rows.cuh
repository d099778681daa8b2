#pragma once
// Which rows a block of a prefill's attention takes: pairs of a row and a query
// head of one kv head, so that a group's heads share what the block reads.
// Device code only.

#include <cstdint>

#include "backend/kernels.h"

namespace signet::backend::gpu {

/// Pair m is row first + m / group, head first_head + m % group. Rows are
/// consecutive positions of one slot.
struct FlashRows {
  int64_t first;
  int count;  // of live rows
  int group;
  int64_t first_head;
  int32_t slot;
  int32_t first_position;
  int32_t last_position;  // of the last live row
};

/// The rows of block (x, y) of a grid of kv heads by tiles of `pairs`. The kv
/// heads of a tile run together; the last rows, the longest, first. False where
/// no row is live.
__device__ inline bool FindFlashRows(const AttentionArgs& args, int pairs,
                                     FlashRows& rows) {
  rows.group =
      static_cast<int>(args.heads) / static_cast<int>(args.cache.num_kv_heads);
  const int per_block = pairs / rows.group;
  rows.first = int64_t{gridDim.y - 1 - blockIdx.y} * per_block;
  const int64_t left = *args.rows.live - rows.first;
  if (left <= 0) return false;
  rows.count = static_cast<int>(min(left, int64_t{per_block}));
  rows.first_head = int64_t{blockIdx.x} * rows.group;
  rows.slot = args.rows.slot[rows.first];
  rows.first_position = args.rows.position[rows.first];
  rows.last_position = args.rows.position[rows.first + rows.count - 1];
  return true;
}

/// The row, of `rows`, that pair m is of; pairs past the live rows compute
/// something and store nothing.
__device__ inline int LiveRowOf(const FlashRows& rows, int m) {
  return min(m / rows.group, rows.count - 1);
}

}  // namespace signet::backend::gpu
