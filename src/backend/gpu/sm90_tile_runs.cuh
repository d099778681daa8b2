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

/// Rows of one expert, from the first row of grouped tile `tile` on.
struct RunPart {
  int32_t tile;
  int32_t rows;
  int32_t expert;
};

/// The same in a list.
struct ListedPart {
  uint32_t tile : 11;
  uint32_t rows : 9;
  uint32_t expert : 12;
};

/// Grouped tiles and experts of launches whose parts a block lists; where there
/// are more, each tile is a part of its own: the same bits, since every row is
/// multiplied alike.
inline constexpr int kMostListedTiles = 1536;
inline constexpr int kMostListedExperts = 1 << 12;
static_assert(kMostListedTiles <= 1 << 11);

__device__ inline bool ListsParts(const Operands& op) {
  return op.num_tiles <= kMostListedTiles &&
         op.num_experts <= kMostListedExperts;
}

/// In shared memory.
template <int kThreads>
struct RunParts {
  ListedPart parts[kMostListedTiles];
  int32_t counts[kThreads / kWarpSize];
};

/// The first tile from `begin` on of an expert >= `expert`, of tiles whose
/// experts ascend; tiles of none, -1, come last.
__device__ inline int FirstTileOf(const int32_t* tile_expert, int num_tiles,
                                  uint32_t expert, int begin) {
  int end = num_tiles;
  while (begin < end) {
    const int middle = (begin + end) / 2;
    if (static_cast<uint32_t>(tile_expert[middle]) < expert) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

/// Rows of a grouped tile, of a multiple of four; padding comes last. All loads
/// before the first is needed.
__device__ inline int RowsOfTile(const Operands& op, int tile) {
  const auto* slots = reinterpret_cast<const int4*>(
      op.sorted_slot + int64_t{tile} * op.tile_rows);
  int rows = 0;
#pragma unroll 8
  for (int i = 0; i < op.tile_rows / 4; ++i) {
    const int4 four = slots[i];
    rows += (four.x >= 0) + (four.y >= 0) + (four.z >= 0) + (four.w >= 0);
  }
  return rows;
}

/// The part that begins with `tile`, of at most `most` tiles; no rows if none
/// does.
__device__ inline RunPart PartAt(const Operands& op, const int32_t* tile_expert,
                                 int tile, int most) {
  const int32_t expert = tile_expert[tile];
  if (expert < 0) return {tile, 0, expert};
  const auto key = static_cast<uint32_t>(expert);
  const int begin = FirstTileOf(tile_expert, op.num_tiles, key, 0);
  const int count =
      FirstTileOf(tile_expert, op.num_tiles, key + 1, tile) - begin;
  const int parts = TilesOf(count, most);
  // Part p begins at tile p * count / parts of the run, rounded down.
  const int place = tile - begin;
  const int part = TilesOf(place * parts, count);
  if (part * count / parts != place) return {tile, 0, expert};
  const int tiles = (part + 1) * count / parts - place;
  return {tile, (tiles - 1) * op.tile_rows + RowsOfTile(op, tile + tiles - 1),
          expert};
}

/// Lists the parts of a launch in order and returns how many; all threads of
/// the block call it, and meet before they read the list. `tile_expert`, in
/// shared memory, [op.num_tiles], is used meanwhile.
template <int kThreads>
__device__ inline int ListParts(const Operands& op, int most,
                                int32_t* tile_expert,
                                RunParts<kThreads>& list) {
  for (int tile = static_cast<int>(threadIdx.x); tile < op.num_tiles;
       tile += kThreads) {
    tile_expert[tile] = op.tile_expert[tile];
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  int listed = 0;
#pragma unroll 1
  for (int first = 0; first < op.num_tiles; first += kThreads) {
    const int tile = first + static_cast<int>(threadIdx.x);
    const RunPart part = tile < op.num_tiles
                             ? PartAt(op, tile_expert, tile, most)
                             : RunPart{tile, 0, -1};
    const unsigned begins = __ballot_sync(0xffffffffu, part.rows > 0);
    if (lane == 0) list.counts[warp] = __popc(begins);
    __syncthreads();
    int before = listed + __popc(begins & ((1u << lane) - 1));
#pragma unroll
    for (int w = 0; w < kThreads / kWarpSize; ++w) {
      if (w < warp) before += list.counts[w];
      listed += list.counts[w];
    }
    if (part.rows > 0) {
      list.parts[before] = {.tile = static_cast<uint32_t>(part.tile),
                            .rows = static_cast<uint32_t>(part.rows),
                            .expert = static_cast<uint32_t>(part.expert)};
    }
    __syncthreads();
  }
  return listed;
}

/// Where a block finds its items.
struct Items {
  int dense_rows;           // of a dense product
  const ListedPart* parts;  // or null
  int num_parts;            // or tiles
};

/// Item `rank` of the `count` items side by side at place `place` of the
/// launch, up to `rows` rows by `columns` columns; false past the last. Of a
/// listed part from shared memory alone; without the matrix of an expert.
__device__ inline bool FindItem(const Operands& op, const Items& items,
                                int place, int count, int rank, int rows,
                                int columns, Panel* panel) {
  if (op.matrix == Matrix::kDense) {
    // Down the rows first, so that weights come from memory once.
    const int row_tiles = TilesOf(items.dense_rows, rows);
    if (row_tiles == 0) return false;
    const int group = place / row_tiles;
    const int row_tile = place - group * row_tiles;
    panel->first_row = int64_t{row_tile} * rows;
    panel->rows = min(rows, items.dense_rows - row_tile * rows);
    return ColumnsOfDense(op, int64_t{group} * count + rank, columns, panel);
  }
  // Along the columns, so that the items of a part run together.
  const int per_part = TilesOf(static_cast<int>(op.matrix_rows), columns) *
                       op.num_matrices / count;
  const int part_at = place / per_part;
  if (part_at >= items.num_parts) return false;
  RunPart part;
  if (items.parts != nullptr) {
    const ListedPart& listed = items.parts[part_at];
    part = {static_cast<int32_t>(listed.tile),
            static_cast<int32_t>(listed.rows),
            static_cast<int32_t>(listed.expert)};
  } else {
    part = {part_at, RowsOfTile(op, part_at), op.tile_expert[part_at]};
    if (part.expert < 0) return false;  // so are all after it
  }
  panel->first_row = int64_t{part.tile} * op.tile_rows;
  panel->rows = part.rows;
  const int group = place - part_at * per_part;
  PlaceOfExpert(op, part.expert, group * count + rank, columns, panel);
  return true;
}

/// The items of a block, those of the blocks of its cluster beside each other:
/// all have as many.
template <typename T>
class ItemWalk {
 public:
  __device__ ItemWalk(const Operands& op, const Items& items)
      : op_(op),
        items_(items),
        place_(static_cast<int>(blockIdx.x) / T::kCluster) {}

  __device__ int rank() const {
    return static_cast<int>(blockIdx.x) % T::kCluster;
  }
  __device__ bool Find(Panel* panel) const {
    return FindItem(op_, items_, place_, T::kCluster, rank(), T::kRows,
                    T::kColumns, panel);
  }
  __device__ void Advance() {
    place_ += static_cast<int>(gridDim.x) / T::kCluster;
  }

 private:
  const Operands& op_;
  const Items& items_;
  int place_;
};

}  // namespace signet::backend::gpu
