#pragma once
// Many rows of x against packed weights: tiles of both go through shared
// memory, several steps of 64 elements ahead of the tensor cores. A block walks
// over the launch's panels; the copies run on from one panel into the next, so
// that neither the start nor the stores of a panel leave the memory idle. When
// panels are few, the blocks of a cluster split cols instead and add up.

#include <cstdint>

#include "backend/gpu/product_operands.cuh"
#include "backend/gpu/product_operands.h"
#include "backend/gpu/sm80_mma.cuh"
#include "backend/gpu/sm80_tile_stages.cuh"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// The rows of a panel that a thread holds sums of: g and g + 8 of each of its
/// warp's tiles of 16.
template <typename T>
struct TileRows {
  uint32_t is_row = 0;  // bit 2 i + h: row Of(i, h)
  int active = 0;       // tiles of 16, up to the last that has a row

  __device__ static int Of(int i, int h) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int warp_m = static_cast<int>(threadIdx.x) / kWarpSize / T::kWarpsN;
    return (i * T::kWarpsM + warp_m) * 16 + h * 8 + lane / 4;
  }
  __device__ TileRows(const Operands& op, const Panel& panel) {
#pragma unroll
    for (int i = 0; i < T::kRowTiles; ++i) {
      bool any = false;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const bool is = IsRow(op, panel, Of(i, h));
        is_row |= static_cast<uint32_t>(is) << (2 * i + h);
        any = any || is;
      }
      if (__any_sync(0xffffffffu, any)) active = i + 1;
    }
  }
};

/// Columns of the panel that a thread holds sums of: the pair from here on.
template <typename T>
__device__ inline int TileColumn(int j) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp_n = static_cast<int>(threadIdx.x) / kWarpSize % T::kWarpsN;
  return (warp_n * T::kColumnTiles + j) * 8 + lane % 4 * 2;
}

template <typename T>
__device__ void StoreTile(const Panel& panel, const TileRows<T>& rows,
                          bool paired,
                          const typename TileMultiplier<T>::Sums& sums) {
#pragma unroll
  for (int i = 0; i < T::kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if ((rows.is_row >> (2 * i + h) & 1) == 0) continue;
      float* out = panel.out +
                   (panel.first_row + TileRows<T>::Of(i, h)) * panel.out_stride;
#pragma unroll
      for (int j = 0; j < T::kColumnTiles; ++j) {
        const int column = TileColumn<T>(j);
        const float first = sums[i][j][2 * h];
        const float second = sums[i][j][2 * h + 1];
        if (paired) {
          if (column < panel.columns) {
            *reinterpret_cast<float2*>(out + column) =
                make_float2(first, second);
          }
        } else {
          if (column < panel.columns) out[column] = first;
          if (column + 1 < panel.columns) out[column + 1] = second;
        }
      }
    }
  }
}

/// Adds up what the blocks of a cluster hold of a dense tile, in the order of
/// their ranks, and stores it, each block some rows. The stages are over.
template <typename T, int kCluster>
__device__ void StoreClusterSum(const Panel& panel, const TileRows<T>& rows,
                                float* shared,
                                const typename TileMultiplier<T>::Sums& sums) {
#pragma unroll
  for (int i = 0; i < T::kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if ((rows.is_row >> (2 * i + h) & 1) == 0) continue;
      float* to = shared + TileRows<T>::Of(i, h) * T::kSumStride;
#pragma unroll
      for (int j = 0; j < T::kColumnTiles; ++j) {
        *reinterpret_cast<float2*>(to + TileColumn<T>(j)) =
            make_float2(sums[i][j][2 * h], sums[i][j][2 * h + 1]);
      }
    }
  }
  ClusterSync();
  constexpr int kQuads = T::kColumns / 4;
  const bool aligned = panel.out_stride % 4 == 0 &&
                       reinterpret_cast<uintptr_t>(panel.out) % 16 == 0;
  const int rank = ClusterRank();
  for (int i = static_cast<int>(threadIdx.x);; i += T::kThreads) {
    const int row = i / kQuads * kCluster + rank;
    const int column = i % kQuads * 4;
    if (row >= panel.rows) break;
    if (column >= panel.columns) continue;
    const uint32_t from = SharedAddress(shared + row * T::kSumStride + column);
    float4 parts[kCluster];
#pragma unroll
    for (int r = 0; r < kCluster; ++r) parts[r] = LoadOfCluster(from, r);
    float4 sum = parts[0];
#pragma unroll
    for (int r = 1; r < kCluster; ++r) {
      sum.x = __fadd_rn(sum.x, parts[r].x);
      sum.y = __fadd_rn(sum.y, parts[r].y);
      sum.z = __fadd_rn(sum.z, parts[r].z);
      sum.w = __fadd_rn(sum.w, parts[r].w);
    }
    float* out =
        panel.out + (panel.first_row + row) * panel.out_stride + column;
    if (aligned) {
      *reinterpret_cast<float4*>(out) = sum;
    } else {
      const float values[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (column + c < panel.columns) out[c] = values[c];
      }
    }
  }
  ClusterSync();  // nobody leaves while others read its sums
}

/// `paired`: two neighbouring outputs are 8 aligned bytes.
template <typename T, int kCluster>
__device__ __forceinline__ void MultiplyPanels(const Operands& op,
                                               bool paired) {
  extern __shared__ __align__(128) unsigned char shared[];
  const uint32_t stages = SharedAddress(shared);
  constexpr int kAhead = T::kStages - 1;

  const int steps = TilesOf(static_cast<int>(op.cols), kTileStep);
  int begin = 0;
  int end = steps;
  if constexpr (kCluster > 1) {
    const int share = TilesOf(steps, kCluster);
    begin = min(ClusterRank() * share, steps);
    end = min(begin + share, steps);
  }
  const int64_t first_item = blockIdx.x / kCluster;
  const int64_t stride = gridDim.x / kCluster;

  TileCopier<T> copier(op, stages);
  Panel panel;
  const bool early = HasEarlyColumns(op, T::kRows);
  if (early && ColumnsOfDense(op, first_item, T::kColumns, &panel)) {
    copier.SetWeights(panel);
#pragma unroll
    for (int s = 0; s < kAhead; ++s) {
      if (begin + s < end) copier.CopyWeights(s, begin + s);
    }
  }
  DependencyWait();
  const int dense_rows = op.matrix == Matrix::kDense ? DenseRows(op) : 0;
  const auto find = [&](int64_t item, Panel* found) {
    return FindPanel(op, item, dense_rows, T::kRows, T::kColumns, found);
  };
  if (!find(first_item, &panel)) {  // the same for all blocks of a cluster
    EndCopyGroup();
    WaitCopyGroups<0>();
    return;
  }
  copier.SetInputs(op, panel);
  if (!early) copier.SetWeights(panel);

  // Where the copies are: steps of this item up to `end`, then the next item.
  int64_t copy_item = first_item;
  int copy_step = begin;
  bool copying = begin < end;
  const auto copy_next = [&](int stage) {
    if (!copying) return;
    if (copy_step == end) {
      copy_item += stride;
      Panel next;
      copying = kCluster == 1 && find(copy_item, &next);
      if (!copying) return;
      copier.SetWeights(next);
      copier.SetInputs(op, next);
      copy_step = begin;
    }
    copier.CopyInputs(stage, copy_step);
    copier.CopyWeights(stage, copy_step);
    ++copy_step;
  };
#pragma unroll
  for (int s = 0; s < kAhead; ++s) {
    if (early && begin + s < end) {
      copier.CopyInputs(s, copy_step++);
    } else {
      copy_next(s);
    }
    EndCopyGroup();
  }

  const TileMultiplier<T> multiplier(stages);
  int stage = 0;
  int free_stage = kAhead;
  for (int64_t item = first_item;;) {
    const TileRows<T> rows(op, panel);
    typename TileMultiplier<T>::Sums sums = {};
#pragma unroll 1
    for (int step = begin; step < end; ++step) {
      // Of kAhead groups in flight the oldest is this step's. Once all threads
      // are here, the stage of the step before is free.
      WaitCopyGroups<kAhead - 1>();
      __syncthreads();
      copy_next(free_stage);
      EndCopyGroup();
      multiplier.Multiply(stage, rows.active, sums);
      free_stage = stage;
      stage = stage + 1 == T::kStages ? 0 : stage + 1;
    }
    if constexpr (kCluster > 1) {
      WaitCopyGroups<0>();
      __syncthreads();
      StoreClusterSum<T, kCluster>(panel, rows,
                                   reinterpret_cast<float*>(shared), sums);
      return;
    }
    StoreTile<T>(panel, rows, paired, sums);
    item += stride;
    if (!find(item, &panel)) return;
  }
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    TileKernel(const __grid_constant__ Operands op, bool paired) {
  MultiplyPanels<T, 1>(op, paired);
}

template <typename T, int kCluster>
__global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    __cluster_dims__(kCluster, 1, 1)
        ClusterTileKernel(const __grid_constant__ Operands op, bool paired) {
  MultiplyPanels<T, kCluster>(op, paired);
}

}  // namespace signet::backend::gpu
