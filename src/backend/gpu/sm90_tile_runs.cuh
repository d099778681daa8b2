#pragma once
// What a block of a tiled product walks over: dense tiles of rows and columns,
// or of grouped rows whole runs of an expert, cut into parts as even as may be,
// so that its weights meet as many rows at once as a tile holds. Device code
// only, after DependencyWait.

#include <cstdint>

#include "backend/gpu/product_operands.cuh"
#include "backend/gpu/product_operands.h"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// Grouped tiles that a block lists; where there are more, each is a part of
/// its own: the same bits, since every row is multiplied alike.
inline constexpr int kMostListedTiles = 2048;

/// Rows of one expert, from the first row of grouped tile `tile` on.
struct RunPart {
  int32_t tile;
  int32_t rows;
};

/// In shared memory.
template <int kThreads>
struct RunParts {
  RunPart parts[kMostListedTiles];
  int32_t counts[kThreads / kWarpSize];
};

/// The first tile from `begin` on of an expert >= `expert`; tiles of none, -1,
/// come last.
__device__ inline int FirstTileOf(const Operands& op, uint32_t expert,
                                  int begin) {
  int end = op.num_tiles;
  while (begin < end) {
    const int middle = (begin + end) / 2;
    if (static_cast<uint32_t>(op.tile_expert[middle]) < expert) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

/// Rows of a grouped tile; padding comes last.
__device__ inline int RowsOfTile(const Operands& op, int tile) {
  const int32_t* slots = op.sorted_slot + int64_t{tile} * op.tile_rows;
  int begin = 0;
  int end = op.tile_rows;
  while (begin < end) {
    const int middle = (begin + end) / 2;
    if (slots[middle] >= 0) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

/// The part that begins with `tile`, of at most `most` tiles; no rows if none
/// does.
__device__ inline RunPart PartAt(const Operands& op, int tile, int most) {
  const int32_t expert = op.tile_expert[tile];
  if (expert < 0) return {tile, 0};
  const int begin = FirstTileOf(op, static_cast<uint32_t>(expert), 0);
  const int count =
      FirstTileOf(op, static_cast<uint32_t>(expert) + 1, tile) - begin;
  const int parts = TilesOf(count, most);
  // Part p begins at tile p * count / parts of the run, rounded down.
  const int place = tile - begin;
  const int part = TilesOf(place * parts, count);
  if (part * count / parts != place) return {tile, 0};
  const int tiles = (part + 1) * count / parts - place;
  return {tile, (tiles - 1) * op.tile_rows + RowsOfTile(op, tile + tiles - 1)};
}

/// Lists the parts of a launch in order and returns how many; all threads of
/// the block call it, and meet before they read the list.
template <int kThreads>
__device__ inline int ListParts(const Operands& op, int most,
                                RunParts<kThreads>& list) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  int listed = 0;
#pragma unroll 1
  for (int first = 0; first < op.num_tiles; first += kThreads) {
    const int tile = first + static_cast<int>(threadIdx.x);
    const RunPart part =
        tile < op.num_tiles ? PartAt(op, tile, most) : RunPart{tile, 0};
    const unsigned begins = __ballot_sync(0xffffffffu, part.rows > 0);
    if (lane == 0) list.counts[warp] = __popc(begins);
    __syncthreads();
    int before = listed + __popc(begins & ((1u << lane) - 1));
#pragma unroll
    for (int w = 0; w < kThreads / kWarpSize; ++w) {
      if (w < warp) before += list.counts[w];
      listed += list.counts[w];
    }
    if (part.rows > 0) list.parts[before] = part;
    __syncthreads();
  }
  return listed;
}

/// Where a block finds its items.
struct Items {
  int dense_rows;        // of a dense product
  const RunPart* parts;  // listed, or null
  int num_parts;         // or tiles
};

/// Item `item` of the launch, up to `rows` rows by `columns` columns; false
/// past the last.
__device__ inline bool FindItem(const Operands& op, const Items& items,
                                int64_t item, int rows, int columns,
                                Panel* panel) {
  if (op.matrix == Matrix::kDense) {
    return FindPanel(op, item, items.dense_rows, rows, columns, panel);
  }
  const int per_row =
      TilesOf(static_cast<int>(op.matrix_rows), columns) * op.num_matrices;
  const int64_t place = item / per_row;
  if (place >= items.num_parts) return false;
  const RunPart part = items.parts != nullptr
                           ? items.parts[place]
                           : RunPart{static_cast<int32_t>(place),
                                     RowsOfTile(op, static_cast<int>(place))};
  const int expert = op.tile_expert[part.tile];
  if (expert < 0) return false;  // so are all after it
  panel->first_row = int64_t{part.tile} * op.tile_rows;
  panel->rows = part.rows;
  ColumnsOfExpert(op, expert, static_cast<int>(item - place * per_row), columns,
                  panel);
  return true;
}

}  // namespace signet::backend::gpu
