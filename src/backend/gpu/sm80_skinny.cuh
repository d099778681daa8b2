#pragma once
// Up to 16 rows of x against packed weights, bound by the weights' way from
// memory. Each warp takes a run of cols and all of the block's rows of weights
// and x; every lane loads 16 bytes of a row straight to registers, a ring of
// steps ahead. Both operands of an mma see cols in the order in which lanes
// loaded them, so no exchange is needed: lane q of a row has the eight elements
// 8q ... 8q + 7 of a step of 32, which serve as (2q.., 2q + 8..) of two mmas.

#include <cuda_bf16.h>

#include <cstdint>

#include "backend/gpu/product_operands.cuh"
#include "backend/gpu/product_operands.h"
#include "backend/gpu/sm80_mma.cuh"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

template <int kWeightTiles>
struct SkinnyShape {
  static constexpr int kTokens = kSkinnyTokens;
  static constexpr int kColumns = 8 * kWeightTiles;
  static constexpr int kRing = SkinnyRing(kWeightTiles);
  // Twelve warps of large blocks fill a multiprocessor's registers.
  static constexpr int kMaxThreads =
      kWarpSize * (kWeightTiles == 8 ? 12 : MaxSkinnyWarps(kWeightTiles));
  // Of the partial sums, [warp][token][column]: no two lanes of a store meet
  // in a bank.
  static constexpr int kSumStride = kColumns + 8;
  static constexpr int kWarpSums = kTokens * kSumStride;
};

template <int kWeightTiles>
__global__ void __launch_bounds__(SkinnyShape<kWeightTiles>::kMaxThreads)
    SkinnyKernel(const __grid_constant__ Operands op) {
  using S = SkinnyShape<kWeightTiles>;
  constexpr int kRing = S::kRing;
  extern __shared__ float sums[];
  __shared__ bool is_row[S::kTokens];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int g = lane / 4;
  const int q = lane % 4;

  // This warp's run of steps. Elements past it count as zeros.
  const int cols = static_cast<int>(op.cols);
  const int per_warp = TilesOf(TilesOf(cols, kSkinnyStep), warps);
  const int begin = warp * per_warp * kSkinnyStep;
  const int end = min(cols, begin + per_warp * kSkinnyStep);

  Panel panel;
  const __nv_bfloat16* weights = nullptr;
  int last_column = 0;
  uint4 w[kRing][kWeightTiles];
  const auto load_weights = [&](uint4(&to)[kWeightTiles], int k) {
#pragma unroll
    for (int j = 0; j < kWeightTiles; ++j) {
      // Rows past the matrix repeat its last one; nothing of them is stored.
      const unsigned row = static_cast<unsigned>(min(8 * j + g, last_column));
      const unsigned offset =
          row * static_cast<unsigned>(cols) + static_cast<unsigned>(k);
      to[j] = LoadWeights16(weights + offset, k < end);
    }
  };
  const auto begin_weights = [&] {
    weights = static_cast<const __nv_bfloat16*>(panel.matrix) +
              panel.first_column * cols;
    last_column = min(panel.columns, S::kColumns) - 1;
#pragma unroll
    for (int u = 0; u < kRing; ++u) {
      load_weights(w[u], begin + u * kSkinnyStep + 8 * q);
    }
  };

  const bool early = HasEarlyColumns(op, S::kTokens);
  if (early && ColumnsOfDense(op, blockIdx.x, S::kColumns, &panel)) {
    begin_weights();
  }
  DependencyWait();
  const int dense_rows = op.matrix == Matrix::kDense ? DenseRows(op) : 0;
  if (!FindPanel(op, blockIdx.x, dense_rows, S::kTokens, S::kColumns, &panel)) {
    return;
  }
  if (!early) begin_weights();
  const __nv_bfloat16* inputs[2];  // of rows g and g + 8
  int input_end[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t row = InputRow(op, panel, 8 * h + g);
    inputs[h] =
        static_cast<const __nv_bfloat16*>(op.x) + max(row, int64_t{0}) * cols;
    input_end[h] = row < 0 ? 0 : end;  // what is no row counts as zeros
    if (warp == 0 && q == 0) is_row[8 * h + g] = row >= 0;
  }
  uint4 x[kRing][2];
  const auto load_inputs = [&](uint4(&to)[2], int k) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      to[h] = LoadInputs16(inputs[h] + k, k < input_end[h]);
    }
  };
#pragma unroll
  for (int u = 0; u < kRing; ++u) {
    load_inputs(x[u], begin + u * kSkinnyStep + 8 * q);
  }

  float acc[kWeightTiles][4] = {};
#pragma unroll 1
  for (int k = begin; k < end; k += kRing * kSkinnyStep) {
#pragma unroll
    for (int u = 0; u < kRing; ++u) {
#pragma unroll
      for (int j = 0; j < kWeightTiles; ++j) {
        MultiplyTile(acc[j], x[u][0].x, x[u][1].x, x[u][0].y, x[u][1].y,
                     w[u][j].x, w[u][j].y);
      }
#pragma unroll
      for (int j = 0; j < kWeightTiles; ++j) {
        MultiplyTile(acc[j], x[u][0].z, x[u][1].z, x[u][0].w, x[u][1].w,
                     w[u][j].z, w[u][j].w);
      }
      const int next = k + (kRing + u) * kSkinnyStep + 8 * q;
      load_weights(w[u], next);
      load_inputs(x[u], next);
    }
  }

  // The sum over warps, in their order.
#pragma unroll
  for (int j = 0; j < kWeightTiles; ++j) {
    float* at = sums + warp * S::kWarpSums + g * S::kSumStride + 8 * j + 2 * q;
    *reinterpret_cast<float2*>(at) = make_float2(acc[j][0], acc[j][1]);
    *reinterpret_cast<float2*>(at + 8 * S::kSumStride) =
        make_float2(acc[j][2], acc[j][3]);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < S::kTokens * S::kColumns;
       i += static_cast<int>(blockDim.x)) {
    const int token = i / S::kColumns;
    const int column = i % S::kColumns;
    if (column >= panel.columns || !is_row[token]) continue;
    const float* part = sums + token * S::kSumStride + column;
    float sum = part[0];
    for (int other = 1; other < warps; ++other) {
      sum = __fadd_rn(sum, part[other * S::kWarpSums]);
    }
    panel.out[(panel.first_row + token) * panel.out_stride + column] = sum;
  }
}

}  // namespace signet::backend::gpu
