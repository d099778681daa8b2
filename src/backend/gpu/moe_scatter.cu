// The grouped order of slots: a counting sort that is stable because every warp
// takes a run of consecutive slots, ranks them among its own of the same
// expert, and later adds how many the runs before it have. Ranks wait in
// registers meanwhile. One block, or for many slots the eight of a cluster.
// Nothing depends on who comes first.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backend/gpu/cluster.cuh"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/moe_scatter.cuh"
#include "backend/gpu/sm80_mma.cuh"
#include "backend/gpu/vendor.h"
#include "backend/kernels.h"

namespace signet::backend::gpu {
namespace {

using namespace scatter;  // NOLINT(google-build-using-namespace)

constexpr int kMinWarps = 16;         // enough for padding and tables
constexpr int64_t kManySlots = 2048;  // beyond them a cluster pays
constexpr int kCluster = 8;
constexpr int kFewRounds = 2;  // of 32 slots, in registers
constexpr int kManyRounds = 8;

/// All that is no slot's: padding, tiles, and what lies past the end.
__device__ __forceinline__ void FillRest(const ScatterArgs& args,
                                         const ScatterShared& shared,
                                         int end_tile, int call_warp,
                                         int call_warps, int lane) {
  const int num_local = static_cast<int>(args.num_local);
  const int tile_rows = static_cast<int>(args.tile_rows);
  const int max_rows = static_cast<int>(args.max_rows);
  for (int local = call_warp; local < num_local; local += call_warps) {
    const int tile = shared.begin_tile[local];
    const int next =
        local + 1 < num_local ? shared.begin_tile[local + 1] : end_tile;
    for (int row = tile * tile_rows + shared.of_call[local] + lane;
         row < next * tile_rows; row += kWarpSize) {
      args.sorted_slot[row] = -1;
    }
    for (int t = tile + lane; t < next; t += kWarpSize) {
      args.tile_expert[t] = local;
    }
    if (lane == 0) {
      args.counts[local] = (next - tile) * tile_rows;
      args.offsets[local] = tile * tile_rows;
    }
  }
  const int call_thread = call_warp * kWarpSize + lane;
  const int call_threads = call_warps * kWarpSize;
  const int rows_end = end_tile * tile_rows;
  if (call_thread == 0) args.offsets[num_local] = rows_end;
  for (int row = rows_end + call_thread; row < max_rows; row += call_threads) {
    args.sorted_slot[row] = -1;
  }
  for (int tile = end_tile + call_thread; tile < max_rows / tile_rows;
       tile += call_threads) {
    args.tile_expert[tile] = -1;
  }
}

template <int kBlocks, int kRounds>
__device__ __forceinline__ void ScatterSlots(const ScatterArgs& args) {
  extern __shared__ int32_t memory[];
  constexpr int kGroup = kRounds * kWarpSize;
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const int lane = thread % kWarpSize;
  const int warp = thread / kWarpSize;
  const int warps = threads / kWarpSize;
  const int rank = kBlocks == 1 ? 0 : ClusterRank();
  const int call_warp = rank * warps + warp;
  const int call_warps = kBlocks * warps;
  const int num_local = static_cast<int>(args.num_local);
  const int tile_rows = static_cast<int>(args.tile_rows);
  const int top_k = static_cast<int>(args.top_k);
  const int num_slots = static_cast<int>(args.rows.capacity) * top_k;
  const ScatterShared shared(memory, warps, num_local);
  int32_t* const mine = shared.of_warp + warp * shared.stride;

  // What no launch writes comes before the wait for those before.
  for (int i = thread; i < warps * shared.stride; i += threads) {
    shared.of_warp[i] = 0;
  }
  for (int id = thread; id < args.num_experts; id += threads) {
    shared.local_of[id] = args.global_to_local[id];
  }
  DependencyWait();

  // This warp's run of slots, live or not: ids do not wait for `live`.
  const int share =
      ((num_slots + call_warps - 1) / call_warps + kWarpSize - 1) / kWarpSize *
      kWarpSize;
  const int begin = min(call_warp * share, num_slots);
  const int end = min(begin + share, num_slots);
  int ids[kRounds];
  LoadIds(args, begin, end, lane, ids);
  const int live_slots = min(max(*args.rows.live * top_k, 0), num_slots);
  __syncthreads();

  Slots<kRounds> slots;
  FindLocals(args, shared, ids, begin, live_slots, lane, slots);
  Rank(mine, num_local, lane, slots);
  for (int first = begin + kGroup; first < end; first += kGroup) {
    Slots<kRounds> more;
    LoadIds(args, first, end, lane, ids);
    FindLocals(args, shared, ids, first, live_slots, lane, more);
    Rank(mine, num_local, lane, more);
  }
  __syncthreads();
  ScanWarps(shared, warps, num_local);
  if constexpr (kBlocks > 1) {
    ClusterSync();
  } else {
    __syncthreads();
  }
  const int end_tile = ScanExperts<kBlocks>(shared, rank, num_local, tile_rows);
  // No thread of this block reads another's counts any more.
  if constexpr (kBlocks > 1) ClusterArrive();
  // Contract P5 makes it an impossibility; before any row is written.
  if (end_tile > static_cast<int>(args.max_rows) / tile_rows) __trap();

  if (end - begin <= kGroup) {
    Place(args, shared, slots, mine, begin, end, lane);
  } else {
    for (int first = begin; first < end; first += kGroup) {
      LoadIds(args, first, end, lane, ids);
      FindLocals(args, shared, ids, first, live_slots, lane, slots);
      Rank(mine, num_local, lane, slots);
      Place(args, shared, slots, nullptr, first, end, lane);
    }
  }
  FillRest(args, shared, end_tile, call_warp, call_warps, lane);
  if constexpr (kBlocks > 1) {
    __syncwarp();
    ClusterWait();  // till then of_block may still be read
  }
}

template <int kRounds>
__global__ void __launch_bounds__(kMaxWarps* kWarpSize)
    ScatterKernel(const __grid_constant__ ScatterArgs args) {
  ScatterSlots<1, kRounds>(args);
}

template <int kRounds>
__global__ void __launch_bounds__(kMaxWarps* kWarpSize)
    __cluster_dims__(kCluster, 1, 1)
        ClusterScatterKernel(const __grid_constant__ ScatterArgs args) {
  ScatterSlots<kCluster, kRounds>(args);
}

}  // namespace

void GpuKernels::Scatter(LaunchKey, const ScatterArgs& args) {
  // As many warps as the slots keep busy and have room for their counts.
  constexpr int64_t kMaxSharedBytes = 200 * 1024;
  constexpr int64_t kWordBytes = sizeof(int32_t);
  const int64_t num_slots = args.rows.capacity * args.top_k;
  const bool many = num_slots > kManySlots;
  const int64_t blocks = many ? kCluster : 1;
  const int64_t wanted = std::clamp<int64_t>(
      num_slots / (blocks * kFewRounds * kWarpSize), kMinWarps, kMaxWarps);
  const int64_t array_words = ArrayWords(args.num_local);
  const int64_t room =
      (kMaxSharedBytes / kWordBytes - args.num_experts) / array_words -
      ScatterShared::kArrays;
  const int64_t warps = std::min(wanted, room);
  if (warps < 1) {
    Check(cudaErrorInvalidValue);
    return;
  }
  const bool few = num_slots <= blocks * warps * kFewRounds * kWarpSize;
  const auto kernel = !many ? ScatterKernel<kFewRounds>
                      : few ? ClusterScatterKernel<kFewRounds>
                            : ClusterScatterKernel<kManyRounds>;
  Check(cudaFuncSetAttribute(kernel,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kMaxSharedBytes)));
  const int64_t words =
      (warps + ScatterShared::kArrays) * array_words + args.num_experts;
  Check(Launch(kernel, dim3(static_cast<unsigned>(blocks)),
               dim3(static_cast<unsigned>(warps * kWarpSize)),
               static_cast<size_t>(words * kWordBytes), stream_, args));
}

}  // namespace signet::backend::gpu
