#pragma once
// The steps of putting slots in grouped order: ranks of a warp's slots, and the
// sums over warps, blocks and experts that make rows of them. Device code only.

#include <cstdint>

#include "backend/gpu/sm80_mma.cuh"
#include "backend/gpu/vendor.h"
#include "backend/kernels.h"

namespace signet::backend::gpu::scatter {

inline constexpr int kMaxWarps = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

/// Words of an array over local experts: lanes that read eight experts of four
/// rows eight apart meet no bank twice.
__host__ __device__ constexpr int64_t ArrayWords(int64_t num_local) {
  return (num_local + kWarpSize - 1) / kWarpSize * kWarpSize + 1;
}

/// Shared memory: per local expert, how many slots each warp has of it (then
/// how many the warps before have), the block, and the whole call; the row
/// where the block's run of it begins, and the tile where the expert's run
/// begins. And the map from ids to local experts.
struct ScatterShared {
  int stride;
  int32_t* of_warp;  // [warps, stride]
  int32_t* of_block;
  int32_t* of_call;
  int32_t* block_begin;
  int32_t* begin_tile;               // the end of all behind the last
  int32_t* local_of;                 // [num_experts]
  static constexpr int kArrays = 4;  // besides of_warp
  __device__ ScatterShared(int32_t* memory, int warps, int num_local)
      : stride(static_cast<int>(ArrayWords(num_local))),
        of_warp(memory),
        of_block(of_warp + warps * stride),
        of_call(of_block + stride),
        block_begin(of_call + stride),
        begin_tile(block_begin + stride),
        local_of(begin_tile + stride) {}
};

/// A lane's slots of a warp's next kRounds * 32: slot 32 i + lane is number i.
template <int kRounds>
struct Slots {
  int local[kRounds];  // -1 if foreign, absent, or not live
  int rank[kRounds];   // among the run's slots of that expert
};

/// Ids of slots from `first` on, all on their way at once; they may lie past
/// the live ones, but not past `end`.
template <int kRounds>
__device__ __forceinline__ void LoadIds(const ScatterArgs& args, int first,
                                        int end, int lane,
                                        int (&ids)[kRounds]) {
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int slot = first + i * kWarpSize + lane;
    ids[i] = slot < end ? args.ids[slot] : -1;
  }
}

template <int kRounds>
__device__ __forceinline__ void FindLocals(const ScatterArgs& args,
                                           const ScatterShared& shared,
                                           const int (&ids)[kRounds], int first,
                                           int live_slots, int lane,
                                           Slots<kRounds>& slots) {
  const int num_experts = static_cast<int>(args.num_experts);
  bool known = true;
  bool counts[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    counts[i] = first + i * kWarpSize + lane < live_slots && ids[i] >= 0;
    known = known && (!counts[i] || ids[i] < num_experts);
  }
  if (!known) __trap();
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    slots.local[i] = counts[i] ? shared.local_of[ids[i]] : -1;
  }
}

/// Ranks the slots, and adds them to the warp's counts in `mine`. Lanes with
/// the same expert find each other bit by bit: votes of all rounds overlap.
template <int kRounds>
__device__ __forceinline__ void Rank(int32_t* mine, int num_local, int lane,
                                     Slots<kRounds>& slots) {
  unsigned peers[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) peers[i] = kAllLanes;
  // Of local + 1: at most num_local.
#pragma unroll 1
  for (int bit = 1; bit <= num_local; bit *= 2) {
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const bool set = ((slots.local[i] + 1) & bit) != 0;
      const unsigned votes = __ballot_sync(kAllLanes, set);
      peers[i] &= set ? votes : ~votes;
    }
  }
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int local = slots.local[i];
    const int before = local >= 0 ? mine[local] : 0;
    slots.rank[i] = before + __popc(peers[i] & ((1u << lane) - 1));
    __syncwarp();
    if (local >= 0 && lane == __ffs(peers[i]) - 1) {
      mine[local] = before + __popc(peers[i]);
    }
    __syncwarp();
  }
}

/// Places ranked slots; `before` holds what the warps before have of an expert,
/// or null where the ranks count them already.
template <int kRounds>
__device__ __forceinline__ void Place(const ScatterArgs& args,
                                      const ScatterShared& shared,
                                      const Slots<kRounds>& slots,
                                      const int32_t* before, int first, int end,
                                      int lane) {
  int rows[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int local = slots.local[i];
    rows[i] = -1;
    if (local >= 0) {
      rows[i] = shared.block_begin[local] + slots.rank[i] +
                (before == nullptr ? 0 : before[local]);
    }
  }
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int slot = first + i * kWarpSize + lane;
    if (rows[i] >= 0) args.sorted_slot[rows[i]] = slot;
    if (slot < end) args.inverse_perm[slot] = rows[i];
  }
}

template <int kLanes>
__device__ __forceinline__ int InclusiveScan(int value, int lane) {
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const int other = __shfl_up_sync(kAllLanes, value, distance, kLanes);
    if (lane % kLanes >= distance) value += other;
  }
  return value;
}

/// Replaces the counts of the warps by the sums of those before; the sum of all
/// goes to of_block. Four lanes share an expert.
__device__ __forceinline__ void ScanWarps(const ScatterShared& shared,
                                          int warps, int num_local) {
  constexpr int kLanes = 4;
  constexpr int kMost = kMaxWarps / kLanes;
  const int thread = static_cast<int>(threadIdx.x);
  const int share = (warps + kLanes - 1) / kLanes;
  const int first_warp = thread % kLanes * share;
  const int count = min(share, warps - first_warp);
  const int step = static_cast<int>(blockDim.x) / kLanes;
  for (int first = 0; first < num_local; first += step) {
    const int local = first + thread / kLanes;
    const bool valid = local < num_local;
    int32_t* const from =
        shared.of_warp + first_warp * shared.stride + (valid ? local : 0);
    int counts[kMost];
    int sum = 0;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      counts[i] = valid && i < count ? from[i * shared.stride] : 0;
    }
#pragma unroll
    for (int i = 0; i < kMost; ++i) sum += counts[i];
    const int inclusive = InclusiveScan<kLanes>(sum, thread % kWarpSize);
    int before = inclusive - sum;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (valid && i < count) from[i * shared.stride] = before;
      before += counts[i];
    }
    if (valid && thread % kLanes == kLanes - 1) {
      shared.of_block[local] = inclusive;
    }
  }
}

/// Padded runs one after the other: fills what the call has of experts, the
/// rows where this block's slots of them begin, and tiles; returns their end.
template <int kBlocks>
__device__ __forceinline__ int ScanExperts(const ScatterShared& shared,
                                           int rank, int num_local,
                                           int tile_rows) {
  __shared__ int warp_sums[kWarpSize];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpSize;
  const int warp = thread / kWarpSize;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  int carry = 0;
  for (int first = 0; first < num_local;
       first += static_cast<int>(blockDim.x)) {
    const int local = first + thread;
    const bool valid = local < num_local;
    int before = 0;
    int all = 0;
    if (valid) {
      if constexpr (kBlocks > 1) {
        int counts[kBlocks];
#pragma unroll
        for (int r = 0; r < kBlocks; ++r) {
          counts[r] =
              LoadIntOfCluster(SharedAddress(shared.of_block + local), r);
        }
#pragma unroll
        for (int r = 0; r < kBlocks; ++r) {
          if (r < rank) before += counts[r];
          all += counts[r];
        }
      } else {
        all = shared.of_block[local];
      }
    }
    const int tiles = (all + tile_rows - 1) / tile_rows;
    const int inclusive = InclusiveScan<kWarpSize>(tiles, lane);
    if (lane == kWarpSize - 1) warp_sums[warp] = inclusive;
    __syncthreads();
    const int sums =
        InclusiveScan<kWarpSize>(lane < warps ? warp_sums[lane] : 0, lane);
    const int warps_before = __shfl_sync(kAllLanes, sums, max(warp - 1, 0));
    const int begin =
        carry + (warp == 0 ? 0 : warps_before) + inclusive - tiles;
    if (valid) {
      shared.of_call[local] = all;
      shared.begin_tile[local] = begin;
      shared.block_begin[local] = begin * tile_rows + before;
    }
    carry += __shfl_sync(kAllLanes, sums, kWarpSize - 1);
    __syncthreads();
  }
  return carry;
}

}  // namespace signet::backend::gpu::scatter
