#pragma once
// Copies of whole pieces of memory to shared memory by the copy engine of a
// multiprocessor: one thread asks, all may wait. They do not queue behind loads
// to registers. Device code only, Hopper.

#include <cstdint>

#include "backend/gpu/sm90_barrier.cuh"
#include "backend/gpu/sm90_tensor_map.h"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// Copies that are waited for together; in shared memory. May be used again
/// once all threads have returned from Await.
struct BulkCopies {
  Barrier barrier;

  /// By one thread, before a barrier of the block.
  __device__ __forceinline__ void Open() { barrier.Open(1); }
  /// By that thread, before it asks for what earlier launches of kernels wrote.
  static __device__ __forceinline__ void SeeEarlierWrites() {
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  /// By that thread: how many bytes are to come, before they are asked for.
  __device__ __forceinline__ void Expect(uint32_t bytes) {
    barrier.Expect(bytes);
  }
  /// All three multiples of 16; some bytes.
  __device__ __forceinline__ void Start(void* to, const void* from,
                                        uint32_t bytes) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1], %2, [%3];" ::"r"(Barrier::Address(to)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes),
        "r"(Barrier::Address(&barrier))
        : "memory");
  }
  /// Returns when all has come; `odd` in every second use.
  __device__ __forceinline__ void Await(bool odd = false) {
    barrier.Await(odd ? 1 : 0);
  }
};

/// Has the copy engine look at a map before the first box is asked for.
__device__ __forceinline__ void Prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Copies the box at (x, y, z) of a tensor map to shared memory, at a multiple
/// of 1,024 bytes. By one thread, which expects its bytes.
__device__ __forceinline__ void StartBoxCopy(uint32_t to, const TensorMap& map,
                                             int x, int y, int z,
                                             Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::"
      "complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(Barrier::Address(&barrier))
      : "memory");
}

/// The same to that place of each of the kBlocks blocks of a cluster, whose
/// barriers at that place all expect its bytes.
template <int kBlocks>
__device__ __forceinline__ void StartSharedBoxCopy(uint32_t to,
                                                   const TensorMap& map, int x,
                                                   int y, int z,
                                                   Barrier& barrier) {
  if constexpr (kBlocks == 1) {
    StartBoxCopy(to, map, x, y, z, barrier);
  } else {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::"
        "complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], "
        "%6;" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(z), "r"(Barrier::Address(&barrier)),
        "h"(static_cast<uint16_t>((1 << kBlocks) - 1))
        : "memory");
  }
}

}  // namespace signet::backend::gpu
