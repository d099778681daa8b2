#pragma once
// Many rows of x against packed weights by warpgroups: one brings tiles of both
// to shared memory, several steps of 64 elements ahead (sm90_tile_stages.cuh);
// two multiply, 64 rows of weights each by all the rows of x that the tile has,
// in instructions of 32 to 256 of them. A block walks over the launch's items,
// and its copies run on from one into the next. Every sum runs over cols in
// steps of 16 elements, whatever the tile: its height is a matter of speed
// alone.

#include <cstdint>

#include "backend/gpu/product_config.h"
#include "backend/gpu/product_operands.cuh"
#include "backend/gpu/product_operands.h"
#include "backend/gpu/sm80_mma.cuh"
#include "backend/gpu/sm90_tile_runs.cuh"
#include "backend/gpu/sm90_tile_stages.cuh"
#include "backend/gpu/sm90_wgmma.cuh"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// Sums of kWarpgroupRows columns by kBlocks * 32 rows, 64 rows a place.
template <int kBlocks>
using WarpgroupSums = float[(kBlocks + 1) / 2][32];

/// kBlocks * 32 rows of x at `b`.
template <int kBlocks>
__device__ __forceinline__ void MultiplyRows(WarpgroupSums<kBlocks>& sums,
                                             uint64_t a, uint64_t b) {
  constexpr uint64_t kPlace = 64 * 128 >> 4;
  if constexpr (kBlocks == 8) {
    Multiply256(sums[0], sums[1], sums[2], sums[3], a, b);
  } else {
    constexpr int kFirst = kBlocks / 4 * 2;
    if constexpr (kBlocks >= 4) Multiply128(sums[0], sums[1], a, b);
    if constexpr (kBlocks % 4 >= 2) {
      Multiply64(sums[kFirst], a, b + kFirst * kPlace);
    }
    if constexpr (kBlocks % 2 == 1) {
      constexpr int kLast = kFirst + kBlocks % 4 / 2;
      Multiply32(sums[kLast], a, b + kLast * kPlace);
    }
  }
}

template <int kBlocks>
__device__ __forceinline__ void StoreSums(const Panel& panel, int group,
                                          const WarpgroupSums<kBlocks>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp =
      static_cast<int>(threadIdx.x) % kWarpgroupThreads / kWarpSize;
  const int column = group * kWarpgroupRows + warp * 16 + lane / 4;
  if (column >= panel.columns) return;
  const bool both = column + 8 < panel.columns;
  const int first = lane % 4 * 2;
  float* out =
      panel.out + (panel.first_row + first) * panel.out_stride + column;
#pragma unroll
  for (int j = 0; j < 4 * kBlocks; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (8 * j + c + first >= panel.rows) return;
      float* to = out + (8 * j + c) * panel.out_stride;
      to[0] = sums[j / 8][j % 8 * 4 + c];
      if (both) to[8] = sums[j / 8][j % 8 * 4 + 2 + c];
    }
  }
}

/// One warpgroup's items.
template <typename T>
class WarpgroupMultiplier {
 public:
  __device__ WarpgroupMultiplier(const Operands& op, uint32_t stages,
                                 TileBarriers<T>& barriers, int group)
      : barriers_(barriers),
        a_(OperandAt(stages + static_cast<uint32_t>(group * kWarpgroupRows *
                                                    T::kRowBytes))),
        b_(OperandAt(stages + T::kInputsAt)),
        steps_(TilesOf(static_cast<int>(op.cols), kTileStep)),
        group_(group),
        leaves_early_(op.matrix != Matrix::kDense) {}

  __device__ __forceinline__ void Run(const Panel& panel) {
    const int blocks = TilesOf(panel.rows, 32);
    switch (blocks) {
      case 1:
        return Run<1>(panel);
      case 2:
        return Run<2>(panel);
      case 3:
        return Run<3>(panel);
      case 4:
        return Run<4>(panel);
      default:
        break;
    }
    if constexpr (T::kRows == 256) {
      switch (blocks) {
        case 5:
          return Run<5>(panel);
        case 6:
          return Run<6>(panel);
        case 7:
          return Run<7>(panel);
        default:
          return Run<8>(panel);
      }
    }
  }

 private:
  // Products and stores in one: sums that met in one place from several kinds
  // of products would make each wait for the one before.
  template <int kBlocks>
  __device__ __forceinline__ void Run(const Panel& panel) {
    WarpgroupSums<kBlocks> sums = {};
    int weights_before = 0;
    int inputs_before = 0;
#pragma unroll 1
    for (int step = 0; step < steps_; ++step) {
      barriers_.inputs.full[inputs_.index].Await(inputs_.parity);
      barriers_.weights.full[weights_.index].Await(weights_.parity);
      const uint64_t a =
          a_ + static_cast<uint64_t>(weights_.index * T::kWeightBytes >> 4);
      const uint64_t b =
          b_ + static_cast<uint64_t>(inputs_.index * T::kInputBytes >> 4);
      BeginProducts();
#pragma unroll
      for (int k = 0; k < kTileStep; k += kWarpgroupStep) {
        MultiplyRows<kBlocks>(sums, Along(a, k), Along(b, k));
      }
      EndProducts();
      if (leaves_early_) {
        WaitProducts<0>();
        Leave(weights_.index, inputs_.index);
      } else {
        WaitProducts<1>();
        if (step > 0) Leave(weights_before, inputs_before);
        weights_before = weights_.index;
        inputs_before = inputs_.index;
      }
      weights_.Advance();
      inputs_.Advance();
    }
    WaitProducts<0>();
    if (!leaves_early_) Leave(weights_before, inputs_before);
    StoreSums<kBlocks>(panel, group_, sums);
  }
  __device__ __forceinline__ void Leave(int weights, int inputs) {
    if (threadIdx.x % kWarpSize != 0) return;
    barriers_.weights.empty[weights].Arrive();
    barriers_.inputs.empty[inputs].Arrive();
  }

  TileBarriers<T>& barriers_;
  const uint64_t a_;
  const uint64_t b_;
  const int steps_;
  const int group_;
  // Rows that threads gather are long on their way: stages count for more than
  // products one after another without a pause.
  const bool leaves_early_;
  StageAt<T::kWeightStages> weights_;
  StageAt<T::kInputStages> inputs_;
};

template <typename T>
__global__ void __launch_bounds__(T::kThreads, 1)
    WarpgroupTileKernel(const __grid_constant__ Operands op,
                        const __grid_constant__ TileMaps maps) {
  extern __shared__ unsigned char shared[];
  __shared__ TileBarriers<T> barriers;
  __shared__ InputRows<T> rows;
  __shared__ RunParts<T::kThreads> listed;
  const uint32_t stages =
      (SharedAddress(shared) + T::kAlign - 1) / T::kAlign * T::kAlign;
  const int group = static_cast<int>(threadIdx.x) / kWarpgroupThreads;
  if (threadIdx.x == 0) {
    barriers.weights.Open();
    barriers.inputs.Open();
  }
  DependencyWait();
  Items items = {};
  const bool is_dense = op.matrix == Matrix::kDense;
  if (is_dense) {
    items.dense_rows = DenseRows(op);
  } else if (op.num_tiles <= kMostListedTiles) {
    items.parts = listed.parts;
    items.num_parts = ListParts(op, T::kRows / op.tile_rows, listed);
  } else {
    items.num_parts = op.num_tiles;
  }
  __syncthreads();

  if (group == 2) {
    const TileBringer<T> bringer(op, maps, items, stages, barriers);
    const int warp =
        static_cast<int>(threadIdx.x) % kWarpgroupThreads / kWarpSize;
    if (warp == T::kInputWarps) {
      bringer.BringWeights();
    } else if (!is_dense) {
      bringer.GatherInputs(warp, rows.of_item[warp]);
    } else if (warp == 0) {
      bringer.BringInputs();
    }
  } else {
    Panel panel;
    WarpgroupMultiplier<T> multiplier(op, stages, barriers, group);
    for (int64_t item = blockIdx.x;
         FindItem(op, items, item, T::kRows, T::kColumns, &panel);
         item += gridDim.x) {
      multiplier.Run(panel);
    }
  }
}

}  // namespace signet::backend::gpu
