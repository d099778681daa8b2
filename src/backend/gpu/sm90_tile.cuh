#pragma once
// Many rows of x against packed weights by warpgroups: a few warps bring tiles
// of both to shared memory, several steps of 64 elements ahead
// (sm90_tile_stages.cuh); two warpgroups multiply, 64 rows of weights each by
// all the rows of x that the tile has, in instructions of 32 to 256 of them. A
// block walks over the launch's items, and its copies run on from one into the
// next. Every sum runs over cols in steps of 16 elements, whatever the tile and
// the cluster: both are a matter of speed alone.

#include <cstdint>

#include "backend/gpu/cluster.cuh"
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

/// kBlocks * 32 rows of x at `b`. No instruction of 256 rows unless kWide: it
/// has more registers than a thread of a large block begins with.
template <int kBlocks, bool kWide>
__device__ __forceinline__ void MultiplyRows(WarpgroupSums<kBlocks>& sums,
                                             uint64_t a, uint64_t b) {
  constexpr uint64_t kPlace = 64 * 128 >> 4;
  if constexpr (kBlocks == 8 && kWide) {
    Multiply256(sums[0], sums[1], sums[2], sums[3], a, b);
  } else {
    constexpr int kFirst = kBlocks / 4 * 2;
    if constexpr (kBlocks >= 4) Multiply128(sums[0], sums[1], a, b);
    if constexpr (kBlocks == 8) {
      Multiply128(sums[2], sums[3], a, b + 2 * kPlace);
    }
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
        group_(group) {}

  __device__ __forceinline__ void Run(const Panel& panel) {
    RunBlocks<1>(TilesOf(panel.rows, 32), panel);
  }

 private:
  template <int kBlocks>
  __device__ __forceinline__ void RunBlocks(int blocks, const Panel& panel) {
    if constexpr (32 * kBlocks == T::kRows) {
      Run<kBlocks>(panel);
    } else if (blocks == kBlocks) {
      Run<kBlocks>(panel);
    } else {
      RunBlocks<kBlocks + 1>(blocks, panel);
    }
  }
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
        MultiplyRows<kBlocks, !T::kGathers>(sums, Along(a, k), Along(b, k));
      }
      EndProducts();
      if constexpr (T::kGathers) {
        // Rows that threads gather are long on their way: stages count for more
        // than products one after another without a pause.
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
    if constexpr (!T::kGathers) Leave(weights_before, inputs_before);
    StoreSums<kBlocks>(panel, group_, sums);
  }
  __device__ __forceinline__ void Leave(int weights, int inputs) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    if (lane == 0) barriers_.weights.empty[weights].Arrive();
    if constexpr (T::kCluster == 1) {
      if (lane == 0) barriers_.inputs.empty[inputs].Arrive();
    } else {
      if (lane < T::kCluster) barriers_.inputs.empty[inputs].ArriveIn(lane);
    }
  }

  TileBarriers<T>& barriers_;
  const uint64_t a_;
  const uint64_t b_;
  const int steps_;
  const int group_;
  StageAt<T::kWeightStages> weights_;
  StageAt<T::kInputStages> inputs_;
};

template <typename T>
__global__ void __launch_bounds__(T::kThreads, 1)
    WarpgroupTileKernel(const __grid_constant__ Operands op,
                        const __grid_constant__ TileMaps maps) {
  extern __shared__ unsigned char shared[];
  __shared__ TileBarriers<T> barriers;
  __shared__ RunParts<T::kThreads> listed;
  __shared__ GatheredItems<T> gathered;
  const uint32_t stages =
      (SharedAddress(shared) + T::kAlign - 1) / T::kAlign * T::kAlign;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  if (threadIdx.x == 0) {
    barriers.Open();
    if constexpr (!T::kGathers) Prefetch(maps.inputs);
    if (maps.has_weights) Prefetch(maps.weights[0]);
  }
  DependencyWait();
  Items items = {};
  if constexpr (!T::kGathers) {
    items.dense_rows = DenseRows(op);
  } else if (ListsParts(op)) {
    items.parts = listed.parts;
    // Stages of x that no copy engine writes.
    static_assert(T::kInputStages * T::kInputBytes >= 4 * kMostListedTiles);
    items.num_parts =
        ListParts(op, T::kRows / op.tile_rows,
                  reinterpret_cast<int32_t*>(
                      shared + (stages - SharedAddress(shared)) + T::kInputsAt),
                  listed);
  } else {
    items.num_parts = op.num_tiles;
  }
  __syncthreads();
  MeetCluster<T::kCluster>();  // the barriers of all its blocks are open

  if (warp < T::kMultiplyingWarps) {
    if constexpr (T::kGathers) TakeRegisters<T::kMultiplyingRegisters>();
    Panel panel;
    WarpgroupMultiplier<T> multiplier(
        op, stages, barriers,
        static_cast<int>(threadIdx.x) / kWarpgroupThreads);
    for (ItemWalk<T> walk(op, items); walk.Find(&panel); walk.Advance()) {
      multiplier.Run(panel);
    }
  } else {
    if constexpr (T::kGathers) GiveRegisters<T::kBringingRegisters>();
    const TileBringer<T> bringer(op, maps, items, stages, barriers);
    const int input_warp = warp - T::kMultiplyingWarps - 1;
    if (input_warp < 0) {
      bringer.BringWeights();
    } else if (input_warp < T::kInputWarps) {
      if constexpr (T::kGathers) {
        bringer.GatherInputs(input_warp, gathered);
      } else {
        bringer.BringInputs();
      }
    }
  }
  __syncwarp();
  MeetCluster<T::kCluster>();  // none brings or signals any more
}

}  // namespace signet::backend::gpu
