#pragma once
// Tiles of keys and values in shared memory, and the warpgroup that copies them
// there. Device code only, Hopper.

#include <cuda_bf16.h>

#include <cstdint>

#include "backend/gpu/attention_rows.cuh"
#include "backend/gpu/kv_rows.cuh"
#include "backend/gpu/sm80_mma.cuh"
#include "backend/gpu/sm90_attention_weights.cuh"
#include "backend/gpu/sm90_barrier.cuh"
#include "backend/gpu/sm90_wgmma.cuh"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

inline constexpr int kFlashPairs = 2 * kWarpgroupRows;
inline constexpr int kFlashThreads = 3 * kWarpgroupThreads;
inline constexpr int kFlashPlaceDims = 64;  // of a row of 128 bytes
inline constexpr int kFlashRowBytes = 128;

/// Shared memory: the queries, then a ring of stages, each keys or values of a
/// tile. All lie as sm90_wgmma.cuh wants them, in places of 64 dimensions.
template <int kDim>
struct FlashTiles {
  static constexpr int kPlaces = kDim / kFlashPlaceDims;
  static constexpr int kChunks = kDim / 8;  // of 16 bytes, of a row
  // Rows that a warpgroup copies at once.
  static constexpr int kCopyRows = kWarpgroupThreads / kChunks;
  static constexpr int kQueryPlaceBytes = kFlashPairs * kFlashRowBytes;
  static constexpr int kPlaceBytes = kFlashKeys * kFlashRowBytes;
  static constexpr int kQueryBytes = kPlaces * kQueryPlaceBytes;
  static constexpr int kStageBytes = kPlaces * kPlaceBytes;
  static constexpr int kStages = 5;
  static constexpr int kAlign = 1024;
  static constexpr int kSharedBytes =
      kQueryBytes + kStages * kStageBytes + kAlign;
};

/// Where chunk `chunk` of a row lies from the first place on.
__device__ __forceinline__ uint32_t FlashChunkAt(int row, int chunk,
                                                 int place_bytes) {
  return static_cast<uint32_t>(chunk / 8 * place_bytes + row * kFlashRowBytes +
                               ((chunk % 8 ^ row % 8) << 4));
}

/// Stages that are full, by the threads that copy, and empty, by the warps that
/// multiply.
template <int kDim>
struct FlashBarriers {
  Barrier full[FlashTiles<kDim>::kStages];
  Barrier empty[FlashTiles<kDim>::kStages];

  __device__ void Open() {
    for (Barrier& barrier : full) barrier.Open(kWarpgroupThreads);
    for (Barrier& barrier : empty) {
      barrier.Open(2 * kWarpgroupThreads / kWarpSize);
    }
  }
};

/// A stage and which phase of its barriers comes next.
template <int kDim>
struct FlashStage {
  int index = 0;
  int parity = 0;
  __device__ __forceinline__ void Advance() {
    if (++index == FlashTiles<kDim>::kStages) {
      index = 0;
      parity ^= 1;
    }
  }
};

/// The copies of one thread of the warpgroup that copies: one chunk of every
/// kCopyRows-th row. Stages come in the order in which they are used: the keys
/// of a tile, then the values of the one before.
template <int kDim>
class FlashCopier {
 public:
  __device__ FlashCopier(const KvView& cache, const FlashRows& rows,
                         int64_t kv_head, uint32_t stages,
                         FlashBarriers<kDim>& barriers)
      : cache_(cache),
        barriers_(barriers),
        kv_head_(kv_head),
        slot_(rows.slot),
        last_(rows.last_position),
        row_(static_cast<int>(threadIdx.x) % kWarpgroupThreads / T::kChunks),
        chunk_(static_cast<int>(threadIdx.x) % T::kChunks),
        to_(stages + FlashChunkAt(row_, chunk_, T::kPlaceBytes)) {}

  __device__ void Run() {
    int64_t offset = OffsetOf(0);
    int64_t before = 0;
#pragma unroll 1
    for (int first = 0; first <= last_; first += kFlashKeys) {
      // Asked for ahead, as far as there is a page.
      const int64_t next = OffsetOf(min(first + kFlashKeys, last_));
      Copy(cache_.k, offset, first);
      if (first > 0) Copy(cache_.v, before, first - kFlashKeys);
      before = offset;
      offset = next;
    }
    Copy(cache_.v, before, last_ / kFlashKeys * kFlashKeys);
    EndCopyGroup();
    WaitCopyGroups<0>();  // the block must not end before
  }

 private:
  using T = FlashTiles<kDim>;

  __device__ __forceinline__ int64_t OffsetOf(int32_t position) const {
    return KvOffset(cache_, slot_, position, kv_head_);
  }

  // kFlashKeys positions from `first` on, which lies at `offset`; zeros past
  // the last that a row sees, of which memory may hold anything.
  __device__ __forceinline__ void Copy(const void* from, int64_t offset,
                                       int first) {
    barriers_.empty[stage_.index].Await(stage_.parity ^ 1);
    const uint32_t to =
        to_ + static_cast<uint32_t>(stage_.index * T::kStageBytes);
    const auto* elements = static_cast<const __nv_bfloat16*>(from) + chunk_ * 8;
    if (cache_.page_size % kFlashKeys == 0) {
      const int64_t stride = cache_.num_kv_heads * kDim;
      const __nv_bfloat16* page = elements + offset + row_ * stride;
      const int count = last_ - first - row_;
#pragma unroll
      for (int i = 0; i < kFlashKeys / T::kCopyRows; ++i) {
        StartCopy16(RowAt(to, i), page + i * T::kCopyRows * stride,
                    i * T::kCopyRows <= count);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < kFlashKeys / T::kCopyRows; ++i) {
        const int key = first + row_ + i * T::kCopyRows;
        StartCopy16(RowAt(to, i), elements + OffsetOf(min(key, last_)),
                    key <= last_);
      }
    }
    barriers_.full[stage_.index].ArriveAfterCopies();
    stage_.Advance();
  }
  // The chunk's place in row row_ + i * kCopyRows. Row_ is less than kCopyRows,
  // a power of two, so that the permutations of both parts combine.
  __device__ static __forceinline__ uint32_t RowAt(uint32_t to, int i) {
    const int down = i * T::kCopyRows;
    return (to ^ static_cast<uint32_t>(down % 8 << 4)) +
           static_cast<uint32_t>(down * kFlashRowBytes);
  }

  const KvView& cache_;
  FlashBarriers<kDim>& barriers_;
  const int64_t kv_head_;
  const int32_t slot_;
  const int32_t last_;
  const int row_;
  const int chunk_;
  const uint32_t to_;
  FlashStage<kDim> stage_;
};

}  // namespace signet::backend::gpu
