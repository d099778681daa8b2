#pragma once
// How tiles of x and of packed weights come to the tensor cores: copies into
// stages of shared memory, 64 elements of cols each, and the products of one.

#include <cuda_bf16.h>

#include <cstdint>

#include "backend/gpu/product_config.h"
#include "backend/gpu/product_operands.cuh"
#include "backend/gpu/product_operands.h"
#include "backend/gpu/sm80_mma.cuh"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// A tile of kRows rows of x by kColumns rows of weights; warps stand
/// kWarpsM x kWarpsN. Tiles of 16 rows are dealt to the warps in turn, so that
/// all of them have work in a tile that is not full.
template <TileShape kShape_, int kWarpsM_, int kWarpsN_, int kStages_,
          int kBlocks_>
struct TileTraits {
  static constexpr TileShape kShape = kShape_;
  static constexpr int kRows = RowsOf(kShape);
  static constexpr int kColumns = ColumnsOf(kShape);
  static constexpr int kWarpsM = kWarpsM_;
  static constexpr int kWarpsN = kWarpsN_;
  static constexpr int kStages = kStages_;
  static constexpr int kBlocks = kBlocks_;  // a multiprocessor
  static constexpr int kThreads = kWarpSize * kWarpsM * kWarpsN;
  static constexpr int kRowTiles = kRows / (16 * kWarpsM);  // of a warp
  static constexpr int kColumnTiles = kColumns / (8 * kWarpsN);
  static_assert(kColumnTiles % 2 == 0 && kRowTiles <= 4);
  // A stage: rows of x, then of weights, 128 bytes a row. Piece c of row r lies
  // at piece c ^ (r % 8), so that no eight pieces that are copied or loaded
  // together share banks.
  static constexpr int kRowBytes = 2 * kTileStep;
  static constexpr int kInputBytes = kRows * kRowBytes;
  static constexpr int kStageBytes = (kRows + kColumns) * kRowBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes;
  // Eight threads copy a row.
  static constexpr int kCopyRows = kThreads / 8;
  static constexpr int kInputCopies = kRows / kCopyRows;
  static constexpr int kWeightCopies = kColumns / kCopyRows;
  static_assert(kCopyRows % 8 == 0 && kRows % kCopyRows == 0 &&
                kColumns % kCopyRows == 0);
  // Sums that a cluster adds up, [row][column]: stores without bank conflicts.
  static constexpr int kSumStride = kColumns + 8;
  static_assert(kRows * kSumStride * 4 <= kSharedBytes);
};

/// Copies the steps of one panel into stages.
template <typename T>
class TileCopier {
 public:
  __device__ TileCopier(const Operands& op, uint32_t stages)
      : x_(static_cast<const __nv_bfloat16*>(op.x)),
        cols_(static_cast<int>(op.cols)) {
    const int piece = static_cast<int>(threadIdx.x) % 8;
    row_ = static_cast<int>(threadIdx.x) / 8;
    element_ = 8 * piece;
    to_ = stages + static_cast<uint32_t>(row_ * T::kRowBytes +
                                         ((piece ^ (row_ % 8)) << 4));
  }
  __device__ void SetWeights(const Panel& panel) {
    weights_ = static_cast<const __nv_bfloat16*>(panel.matrix) +
               (panel.first_column + row_) * cols_ + element_;
    columns_ = panel.columns - row_;
  }
  __device__ void SetInputs(const Operands& op, const Panel& panel) {
#pragma unroll
    for (int i = 0; i < T::kInputCopies; ++i) {
      const int64_t row = InputRow(op, panel, row_ + i * T::kCopyRows);
      inputs_[i] = row < 0 ? nullptr : x_ + row * cols_ + element_;
    }
  }
  __device__ void CopyInputs(int stage, int step) const {
    const uint32_t to = to_ + static_cast<uint32_t>(stage * T::kStageBytes);
    const int k = step * kTileStep;
    const bool inside = k + element_ < cols_;
#pragma unroll
    for (int i = 0; i < T::kInputCopies; ++i) {
      const bool valid = inside && inputs_[i] != nullptr;
      StartCopy16(to + i * T::kCopyRows * T::kRowBytes,
                  valid ? inputs_[i] + k : x_, valid);
    }
  }
  __device__ void CopyWeights(int stage, int step) const {
    const uint32_t to =
        to_ + static_cast<uint32_t>(stage * T::kStageBytes + T::kInputBytes);
    const int k = step * kTileStep;
    const bool inside = k + element_ < cols_;
#pragma unroll
    for (int i = 0; i < T::kWeightCopies; ++i) {
      const bool valid = inside && i * T::kCopyRows < columns_;
      const __nv_bfloat16* from =
          weights_ + int64_t{i * T::kCopyRows} * cols_ + k;
      StartCopy16(to + i * T::kCopyRows * T::kRowBytes, valid ? from : x_,
                  valid);
    }
  }

 private:
  const __nv_bfloat16* x_;
  int cols_;
  int row_;      // the first that this thread copies
  int element_;  // of a step
  uint32_t to_;
  const __nv_bfloat16* weights_ = nullptr;
  int columns_ = 0;  // rows of weights from row_ on
  const __nv_bfloat16* inputs_[T::kInputCopies];
};

/// One warp's products of a stage: its first kActive tiles of 16 rows.
template <typename T>
class TileMultiplier {
 public:
  using Sums = float[T::kRowTiles][T::kColumnTiles][4];

  __device__ explicit TileMultiplier(uint32_t stages) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    const int warp_m = warp / T::kWarpsN;
    const int warp_n = warp % T::kWarpsN;
    // Row of a matrix of ldmatrix, and which matrix: x has rows then pieces,
    // weights have pieces then rows.
    const int row = lane % 8;
    const int low = lane / 8 % 2;
    const int high = lane / 16;
    inputs_ = stages + static_cast<uint32_t>((warp_m * 16 + low * 8 + row) *
                                             T::kRowBytes);
    input_piece_ = static_cast<uint32_t>(high ^ row) << 4;
    weights_ =
        stages + T::kInputBytes +
        static_cast<uint32_t>((warp_n * T::kColumnTiles * 8 + high * 8 + row) *
                              T::kRowBytes);
    weight_piece_ = static_cast<uint32_t>(low ^ row) << 4;
  }

  /// Tiles of 16 rows past the first `active` have no rows.
  __device__ void Multiply(int stage, int active, Sums& sums) const {
    switch (active) {
      case 4:
        if constexpr (T::kRowTiles >= 4) Multiply<4>(stage, sums);
        break;
      case 3:
        if constexpr (T::kRowTiles >= 3) Multiply<3>(stage, sums);
        break;
      case 2:
        Multiply<2>(stage, sums);
        break;
      case 1:
        Multiply<1>(stage, sums);
        break;
      default:
        break;
    }
  }

 private:
  template <int kActive>
  __device__ __forceinline__ void Multiply(int stage, Sums& sums) const {
    const uint32_t offset = static_cast<uint32_t>(stage * T::kStageBytes);
    uint32_t a[2][kActive][4];
    uint32_t b[2][T::kColumnTiles / 2][4];
    Load(offset, 0, a[0], b[0]);
#pragma unroll
    for (int step = 0; step < kTileStep / 16; ++step) {
      const int now = step % 2;
      if (step + 1 < kTileStep / 16) {
        Load(offset, step + 1, a[1 - now], b[1 - now]);
      }
#pragma unroll
      for (int i = 0; i < kActive; ++i) {
#pragma unroll
        for (int j = 0; j < T::kColumnTiles; ++j) {
          const uint32_t(&pair)[4] = b[now][j / 2];
          MultiplyTile(sums[i][j], a[now][i][0], a[now][i][1], a[now][i][2],
                       a[now][i][3], pair[j % 2 * 2], pair[j % 2 * 2 + 1]);
        }
      }
    }
  }
  template <int kActive>
  __device__ __forceinline__ void Load(
      uint32_t offset, int step, uint32_t (&a)[kActive][4],
      uint32_t (&b)[T::kColumnTiles / 2][4]) const {
    // The two pieces of a step of 16 differ from those of step 0 in bits that
    // `row` in the swizzle flips alike.
    const uint32_t flip = static_cast<uint32_t>(step) << 5;
#pragma unroll
    for (int j = 0; j < T::kColumnTiles / 2; ++j) {
      LoadFragments(b[j], weights_ + offset + j * 16 * T::kRowBytes +
                              (weight_piece_ ^ flip));
    }
#pragma unroll
    for (int i = 0; i < kActive; ++i) {
      LoadFragments(a[i], inputs_ + offset +
                              i * T::kWarpsM * 16 * T::kRowBytes +
                              (input_piece_ ^ flip));
    }
  }

  uint32_t inputs_;
  uint32_t input_piece_;
  uint32_t weights_;
  uint32_t weight_piece_;
};

}  // namespace signet::backend::gpu
