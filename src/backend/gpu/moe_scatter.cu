// The grouped order of slots: a counting sort that is stable because every warp
// takes a run of consecutive slots, counts it, and later fills the rows that
// the counts of the runs before it leave free. One block, or for many slots the
// eight of a cluster. Nothing depends on who comes first.

#include <algorithm>
#include <cstdint>

#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/sm80_mma.cuh"
#include "backend/gpu/vendor.h"
#include "backend/kernels.h"

namespace signet::backend::gpu {
namespace {

constexpr int kMaxWarps = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kManySlots = 2048;  // from here on a cluster pays
constexpr int kCluster = 8;

/// Shared memory: per local expert, how many slots each warp has of it (then
/// how many the warps before have), the block, and the whole call; the row
/// where the block's run of it begins, and where the expert's run begins.
struct ScatterShared {
  int32_t* of_warp;  // [warps, num_local]
  int32_t* of_block;
  int32_t* of_call;
  int32_t* block_begin;
  int32_t* begin;
  static constexpr int kArrays = 4;  // besides of_warp
  __device__ ScatterShared(int32_t* memory, int warps, int num_local)
      : of_warp(memory),
        of_block(of_warp + warps * num_local),
        of_call(of_block + num_local),
        block_begin(of_call + num_local),
        begin(block_begin + num_local) {}
};

/// The local expert of a live slot; -1 if it is foreign or absent.
__device__ int LocalExpert(const ScatterArgs& args, int slot) {
  const int id = args.ids[slot];
  if (id < 0) return -1;
  if (id >= args.num_experts) __trap();
  return args.global_to_local[id];
}

/// The local experts of some slots, one a lane each time.
struct Locals {
  static constexpr int kAhead = 4;
  int of[kAhead];

  /// Of the slots from `first` on; -1 past the end.
  __device__ void Load(const ScatterArgs& args, int first, int end, int lane) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int slot = first + i * kWarpSize + lane;
      of[i] = slot < end ? LocalExpert(args, slot) : -1;
    }
  }
};

/// Calls visit(slot, local, peers) for [begin, end), 32 slots at a time; peers
/// are the lanes whose slot has the same expert. All lanes take part, those
/// past the end with local -1. `locals` are those from `begin` on.
template <typename Visit>
__device__ void ForSlots(const ScatterArgs& args, int begin, int end, int lane,
                         Locals locals, const Visit& visit) {
  for (int first = begin; first < end; first += Locals::kAhead * kWarpSize) {
    if (first > begin) locals.Load(args, first, end, lane);
#pragma unroll
    for (int i = 0; i < Locals::kAhead; ++i) {
      if (first + i * kWarpSize >= end) break;
      const int slot = first + i * kWarpSize + lane;
      const unsigned peers = __match_any_sync(kAllLanes, locals.of[i]);
      visit(slot, locals.of[i], peers);
      __syncwarp();
    }
  }
}

__device__ int InclusiveScan(int value, int lane) {
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const int other = __shfl_up_sync(kAllLanes, value, distance);
    if (lane >= distance) value += other;
  }
  return value;
}

/// Replaces the counts of the warps by the sums of those before; the sum of all
/// goes to of_block.
__device__ void ScanWarps(const ScatterShared& shared, int warps,
                          int num_local) {
  constexpr int kAhead = 8;
  for (int local = static_cast<int>(threadIdx.x); local < num_local;
       local += static_cast<int>(blockDim.x)) {
    int sum = 0;
    for (int first = 0; first < warps; first += kAhead) {
      int counts[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int warp = first + i;
        counts[i] = warp < warps ? shared.of_warp[warp * num_local + local] : 0;
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int warp = first + i;
        if (warp < warps) shared.of_warp[warp * num_local + local] = sum;
        sum += counts[i];
      }
    }
    shared.of_block[local] = sum;
  }
}

/// Padded runs one after the other: fills `begin`, turns block_begin from slots
/// of blocks before into rows; returns the end of the last run.
__device__ int ScanExperts(const ScatterShared& shared, int num_local,
                           int tile_rows) {
  __shared__ int warp_sums[kMaxWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  int carry = 0;
  for (int first = 0; first < num_local;
       first += static_cast<int>(blockDim.x)) {
    const int local = first + static_cast<int>(threadIdx.x);
    const bool valid = local < num_local;
    const int count = valid ? shared.of_call[local] : 0;
    const int padded = (count + tile_rows - 1) / tile_rows * tile_rows;
    const int inclusive = InclusiveScan(padded, lane);
    if (lane == kWarpSize - 1) warp_sums[warp] = inclusive;
    __syncthreads();
    if (warp == 0) {
      const int sum = InclusiveScan(lane < warps ? warp_sums[lane] : 0, lane);
      warp_sums[lane] = sum;
    }
    __syncthreads();
    if (valid) {
      const int before = warp == 0 ? 0 : warp_sums[warp - 1];
      const int begin = carry + before + inclusive - padded;
      shared.begin[local] = begin;
      shared.block_begin[local] += begin;
    }
    carry += warp_sums[warps - 1];
    __syncthreads();
  }
  return carry;
}

template <int kBlocks>
__device__ __forceinline__ void ScatterSlots(const ScatterArgs& args) {
  DependencyWait();
  extern __shared__ int32_t memory[];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int threads = static_cast<int>(blockDim.x);
  const int warps = threads / kWarpSize;
  const int rank = kBlocks == 1 ? 0 : ClusterRank();
  const int call_warp = rank * warps + warp;
  const int call_warps = kBlocks * warps;
  const int call_thread = rank * threads + static_cast<int>(threadIdx.x);
  const int call_threads = kBlocks * threads;

  const int num_local = static_cast<int>(args.num_local);
  const int tile_rows = static_cast<int>(args.tile_rows);
  const int max_rows = static_cast<int>(args.max_rows);
  const int top_k = static_cast<int>(args.top_k);
  const int num_slots = static_cast<int>(args.rows.capacity) * top_k;
  const int live_slots = min(max(*args.rows.live * top_k, 0), num_slots);
  const ScatterShared shared(memory, warps, num_local);

  // This warp's run of slots.
  const int share =
      ((live_slots + call_warps - 1) / call_warps + kWarpSize - 1) / kWarpSize *
      kWarpSize;
  const int begin = min(call_warp * share, live_slots);
  const int end = min(begin + share, live_slots);

  Locals locals;
  locals.Load(args, begin, end, lane);
  int32_t* const mine = shared.of_warp + warp * num_local;
  for (int local = lane; local < num_local; local += kWarpSize) {
    mine[local] = 0;
  }
  __syncwarp();
  ForSlots(args, begin, end, lane, locals, [&](int, int local, unsigned peers) {
    if (local >= 0 && lane == __ffs(peers) - 1) mine[local] += __popc(peers);
  });
  __syncthreads();
  ScanWarps(shared, warps, num_local);
  if constexpr (kBlocks > 1) {
    ClusterSync();
  } else {
    __syncthreads();
  }

  for (int local = static_cast<int>(threadIdx.x); local < num_local;
       local += threads) {
    int before = 0;
    int all = 0;
    if constexpr (kBlocks > 1) {
      int counts[kBlocks];
#pragma unroll
      for (int r = 0; r < kBlocks; ++r) {
        counts[r] = LoadIntOfCluster(SharedAddress(shared.of_block + local), r);
      }
#pragma unroll
      for (int r = 0; r < kBlocks; ++r) {
        if (r < rank) before += counts[r];
        all += counts[r];
      }
    } else {
      all = shared.of_block[local];
    }
    shared.of_call[local] = all;
    shared.block_begin[local] = before;
  }
  __syncthreads();
  const int rows_end = ScanExperts(shared, num_local, tile_rows);
  // Contract P5 makes it an impossibility; before any row is written.
  if (rows_end > max_rows) __trap();

  ForSlots(args, begin, end, lane, locals,
           [&](int slot, int local, unsigned peers) {
             int row = -1;
             if (local >= 0) {
               const int before = mine[local];
               row = shared.block_begin[local] + before +
                     __popc(peers & ((1u << lane) - 1));
               args.sorted_slot[row] = slot;
             }
             if (slot < end) args.inverse_perm[slot] = row;
             __syncwarp();
             if (local >= 0 && lane == __ffs(peers) - 1)
               mine[local] += __popc(peers);
           });

  // All that is no slot's: padding, tiles, and what lies past the end.
  for (int local = call_warp; local < num_local; local += call_warps) {
    const int first = shared.begin[local];
    const int count = shared.of_call[local];
    const int padded = (count + tile_rows - 1) / tile_rows * tile_rows;
    for (int row = count + lane; row < padded; row += kWarpSize) {
      args.sorted_slot[first + row] = -1;
    }
    for (int tile = lane; tile < padded / tile_rows; tile += kWarpSize) {
      args.tile_expert[first / tile_rows + tile] = local;
    }
    if (lane == 0) {
      args.counts[local] = padded;
      args.offsets[local] = first;
    }
  }
  if (call_thread == 0) args.offsets[num_local] = rows_end;
  for (int row = rows_end + call_thread; row < max_rows; row += call_threads) {
    args.sorted_slot[row] = -1;
  }
  for (int tile = rows_end / tile_rows + call_thread;
       tile < max_rows / tile_rows; tile += call_threads) {
    args.tile_expert[tile] = -1;
  }
  for (int slot = live_slots + call_thread; slot < num_slots;
       slot += call_threads) {
    args.inverse_perm[slot] = -1;
  }
  if constexpr (kBlocks > 1) ClusterSync();  // of_block may still be read
}

__global__ void __launch_bounds__(kMaxWarps* kWarpSize)
    ScatterKernel(const __grid_constant__ ScatterArgs args) {
  ScatterSlots<1>(args);
}

__global__ void __launch_bounds__(kMaxWarps* kWarpSize)
    __cluster_dims__(kCluster, 1, 1)
        ClusterScatterKernel(const __grid_constant__ ScatterArgs args) {
  ScatterSlots<kCluster>(args);
}

}  // namespace

void GpuKernels::Scatter(LaunchKey, const ScatterArgs& args) {
  // As many warps as have room for their counts.
  constexpr int64_t kMaxSharedBytes = 200 * 1024;
  const int64_t array_bytes =
      std::max<int64_t>(args.num_local, 1) * static_cast<int64_t>(sizeof(int));
  const int64_t warps = std::min<int64_t>(
      kMaxSharedBytes / array_bytes - ScatterShared::kArrays, kMaxWarps);
  if (warps < 1) {
    Check(cudaErrorInvalidValue);
    return;
  }
  const bool many = args.rows.capacity * args.top_k > kManySlots;
  const auto kernel = many ? ClusterScatterKernel : ScatterKernel;
  Check(cudaFuncSetAttribute(kernel,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kMaxSharedBytes)));
  Check(Launch(
      kernel, dim3(many ? kCluster : 1),
      dim3(static_cast<unsigned>(warps * kWarpSize)),
      static_cast<size_t>((warps + ScatterShared::kArrays) * array_bytes),
      stream_, args));
}

}  // namespace signet::backend::gpu
