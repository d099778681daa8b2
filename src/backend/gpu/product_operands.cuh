#pragma once
// A block's share of a product, found from the operands of the launch. Device
// code only; everything but ColumnsOfDense reads what earlier launches wrote.

#include <cstdint>

#include "backend/gpu/product_operands.h"

namespace signet::backend::gpu {

/// Rows of x against rows of one weight matrix.
struct Panel {
  const void* matrix = nullptr;
  int index = 0;             // of the part, or among an expert's matrices
  int expert = 0;            // the local one
  int64_t first_column = 0;  // the first of its rows
  int columns = 0;           // rows of the matrix from there on
  float* out = nullptr;      // of first_column, in row 0
  int64_t out_stride = 0;
  int64_t first_row = 0;  // in the order of rows: of tokens, or grouped
  int rows = 0;           // at most: grouped rows may be padding
};

__device__ inline int TilesOf(int count, int tile) {
  return (count + tile - 1) / tile;
}

/// Whether the columns of a block follow from its index alone, so that its
/// weights may be loaded before the inputs are there.
__device__ inline bool HasEarlyColumns(const Operands& op, int tile_rows) {
  return op.matrix == Matrix::kDense && op.capacity <= tile_rows;
}

/// The columns of dense item `item`, for HasEarlyColumns; false past the last.
__device__ inline bool ColumnsOfDense(const Operands& op, int64_t item,
                                      int tile_columns, Panel* panel) {
#pragma unroll 1
  for (int p = 0; p < op.num_parts; ++p) {
    const DensePart& part = op.parts[p];
    const int64_t first = item * tile_columns;
    if (first < part.rows) {
      panel->matrix = part.weight;
      panel->index = p;
      panel->first_column = first;
      panel->columns = static_cast<int>(part.rows - first);
      panel->out = part.out + first;
      panel->out_stride = part.rows;
      return true;
    }
    item -= TilesOf(static_cast<int>(part.rows), tile_columns);
  }
  return false;
}

/// Column tile `column_tile` of the matrices of a local expert, that lie side
/// by side in the output; all but the matrix.
__device__ inline void PlaceOfExpert(const Operands& op, int expert,
                                     int column_tile, int tile_columns,
                                     Panel* panel) {
  const int per_matrix =
      TilesOf(static_cast<int>(op.matrix_rows), tile_columns);
  const int index = column_tile / per_matrix;
  panel->index = index;
  panel->expert = expert;
  panel->first_column =
      int64_t{column_tile - index * per_matrix} * tile_columns;
  panel->columns = static_cast<int>(op.matrix_rows - panel->first_column);
  panel->out = op.out + index * op.matrix_rows + panel->first_column;
  panel->out_stride = op.out_stride;
}

/// Matrix `index` of those that a row of an expert meets: two loads, one after
/// the other.
__device__ inline const void* MatrixOfExpert(const Operands& op, int expert,
                                             int index) {
  const ExpertPointers& pointers = op.experts[expert];
  switch (static_cast<Matrix>(static_cast<int>(op.matrix) + index)) {
    case Matrix::kGate:
      return pointers.gate;
    case Matrix::kUp:
      return pointers.up;
    default:
      return pointers.down;
  }
}

__device__ inline void ColumnsOfExpert(const Operands& op, int expert,
                                       int column_tile, int tile_columns,
                                       Panel* panel) {
  PlaceOfExpert(op, expert, column_tile, tile_columns, panel);
  panel->matrix = MatrixOfExpert(op, expert, panel->index);
}

/// Rows that a dense product has.
__device__ inline int DenseRows(const Operands& op) {
  const int live = static_cast<int>(
      min(static_cast<int64_t>(max(*op.live, 0)), op.capacity));
  return op.last_row ? min(live, 1) : live;
}

/// Item `item` of the launch, tiles of `tile_rows` by `tile_columns`; false
/// past the last. Dense items go down the rows first, so that weights come
/// from memory once; grouped ones along the columns, so that the tiles of an
/// expert run together. `dense_rows` is DenseRows.
__device__ inline bool FindPanel(const Operands& op, int64_t item,
                                 int dense_rows, int tile_rows,
                                 int tile_columns, Panel* panel) {
  if (op.matrix == Matrix::kDense) {
    const int row_tiles = TilesOf(dense_rows, tile_rows);
    if (row_tiles == 0) return false;
    const int64_t column_tile = item / row_tiles;
    const int row_tile = static_cast<int>(item - column_tile * row_tiles);
    panel->first_row = int64_t{row_tile} * tile_rows;
    panel->rows = min(tile_rows, dense_rows - row_tile * tile_rows);
    return ColumnsOfDense(op, column_tile, tile_columns, panel);
  }
  const int per_matrix =
      TilesOf(static_cast<int>(op.matrix_rows), tile_columns);
  const int per_row = per_matrix * op.num_matrices;
  const int parts = TilesOf(op.tile_rows, tile_rows);
  const int row_tile = static_cast<int>(item / per_row);
  const int column_tile = static_cast<int>(item - int64_t{row_tile} * per_row);
  const int tile = row_tile / parts;
  const int part = row_tile - tile * parts;
  if (tile >= op.num_tiles) return false;
  const int expert = op.tile_expert[tile];
  if (expert < 0) return false;  // so are all after it
  panel->first_row = int64_t{tile} * op.tile_rows + part * tile_rows;
  panel->rows = min(tile_rows, op.tile_rows - part * tile_rows);
  ColumnsOfExpert(op, expert, column_tile, tile_columns, panel);
  return true;
}

/// The row of x that row `row` of the panel takes, -1 if it is no row.
__device__ inline int64_t InputRow(const Operands& op, const Panel& panel,
                                   int row) {
  if (row >= panel.rows) return -1;
  if (op.matrix == Matrix::kDense) {
    return op.last_row ? *op.live - 1 : panel.first_row + row;
  }
  const int slot = op.sorted_slot[panel.first_row + row];
  return slot < 0 ? -1 : slot / op.slots_per_input;
}

/// Whether row `row` of the panel is a row, and so written.
__device__ inline bool IsRow(const Operands& op, const Panel& panel, int row) {
  if (row >= panel.rows) return false;
  if (op.matrix == Matrix::kDense) return true;
  return op.sorted_slot[panel.first_row + row] >= 0;
}

}  // namespace signet::backend::gpu
