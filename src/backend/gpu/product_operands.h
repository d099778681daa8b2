#pragma once
// What the kernels of products with rounded or grouped inputs share: the
// operands of a launch, and the launchers, one a family of kernels.

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/gpu/product_config.h"
#include "backend/gpu/vendor.h"
#include "backend/views.h"

namespace signet::backend::gpu {

/// Which weights a panel of rows meets: one matrix for all, or one of the
/// matrices of the expert that its tile belongs to.
enum class Matrix { kDense, kGate, kUp, kDown };

inline constexpr int kMaxDenseParts = 6;

struct DensePart {
  const void* weight = nullptr;  // [rows, cols]
  int64_t rows = 0;
  float* out = nullptr;  // [capacity or 1, rows]
};

/// out[r] = x[input of r] W^T over rows r. Dense: r < *live and the input of r
/// is r. Grouped: rows of tiles, and the input of r is
/// sorted_slot[r] / slots_per_input; rows of slot -1 have none and are not
/// written.
struct Operands {
  const void* x = nullptr;
  int64_t cols = 0;  // of x and of every weight matrix
  Matrix matrix = Matrix::kDense;

  // Dense: matrices with outputs of their own.
  std::array<DensePart, kMaxDenseParts> parts = {};
  int num_parts = 0;

  // Grouped: `num_matrices` of [matrix_rows, cols] from `matrix` on, whose
  // outputs lie side by side.
  int num_matrices = 1;
  int64_t matrix_rows = 0;
  const ExpertPointers* experts = nullptr;    // [num_local]
  std::array<ExpertMatrices, 2> layout = {};  // of the num_matrices
  int64_t num_experts = 0;                    // num_local
  float* out = nullptr;
  int64_t out_stride = 0;  // elements from one row of out to the next

  // Dense rows.
  const int32_t* live = nullptr;  // [1]
  int64_t capacity = 0;
  int64_t input_rows = 0;  // of x
  bool last_row = false;   // only row *live - 1, to row 0 of out

  // Grouped rows.
  const int32_t* tile_expert = nullptr;  // [num_tiles], -1 past the end
  const int32_t* sorted_slot = nullptr;  // [num_tiles * tile_rows]
  int num_tiles = 0;
  int tile_rows = 0;
  int slots_per_input = 1;
};

constexpr int64_t TilesFor(int64_t count, int64_t tile) {
  return (count + tile - 1) / tile;
}
/// Tiles of `tile_columns` of all matrices that a row meets.
constexpr int64_t ColumnTilesOf(const Operands& op, int tile_columns) {
  if (op.matrix != Matrix::kDense) {
    return op.num_matrices * TilesFor(op.matrix_rows, tile_columns);
  }
  int64_t tiles = 0;
  for (int p = 0; p < op.num_parts; ++p) {
    tiles += TilesFor(op.parts[static_cast<size_t>(p)].rows, tile_columns);
  }
  return tiles;
}
/// Blocks of a launch that cuts rows into tiles of `tile_rows` and each matrix
/// into tiles of `tile_columns`, of full capacity.
constexpr int64_t ItemsOf(const Operands& op, int tile_rows, int tile_columns) {
  const int64_t row_tiles =
      op.matrix == Matrix::kDense
          ? TilesFor(op.capacity, tile_rows)
          : op.num_tiles * TilesFor(op.tile_rows, tile_rows);
  return row_tiles * ColumnTilesOf(op, tile_columns);
}

/// x and weights bf16 and packed (product_config.h), few rows a tile.
Status MultiplySkinny(Stream stream, const SkinnyConfig& config,
                      const Operands& operands);
/// x and weights bf16 and packed, many rows a tile.
Status MultiplyTiles(Stream stream, int num_sms, const TileConfig& config,
                     const Operands& operands);
/// The same on Hopper, in the order of its own instructions.
Status MultiplyWarpgroups(Stream stream, int num_sms,
                          const WarpgroupConfig& config,
                          const Operands& operands);
/// Any shape: x f32 or bf16, weights f32, bf16 or f16. Weights that meet bf16
/// inputs are rounded to bf16.
Status MultiplyPortable(Stream stream, tensor::DType x_dtype,
                        tensor::DType weight_dtype, const Operands& operands);

/// The family that `config` names.
inline Status Multiply(Stream stream, int num_sms, const ProductConfig& config,
                       tensor::DType x_dtype, tensor::DType weight_dtype,
                       const Operands& operands) {
  switch (config.family) {
    case ProductFamily::kSkinny:
      return MultiplySkinny(stream, config.skinny, operands);
    case ProductFamily::kTiles:
      return MultiplyTiles(stream, num_sms, config.tiles, operands);
    case ProductFamily::kWarpgroups:
      return MultiplyWarpgroups(stream, num_sms, config.warpgroups, operands);
    case ProductFamily::kPortable:
      break;
  }
  return MultiplyPortable(stream, x_dtype, weight_dtype, operands);
}

inline bool IsAligned16(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

}  // namespace signet::backend::gpu
