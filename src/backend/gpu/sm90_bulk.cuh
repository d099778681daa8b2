#pragma once
// Copies of whole pieces of memory to shared memory by the copy engine of a
// multiprocessor: one thread asks, all may wait. They do not queue behind loads
// to registers. Device code only, Hopper.

#include <cstdint>

#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// Copies that are waited for together, once; in shared memory.
struct BulkCopies {
  alignas(8) uint64_t barrier;

  /// By one thread, before a barrier of the block.
  __device__ __forceinline__ void Open() {
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(Address(&barrier))
        : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  /// By that thread: how many bytes are to come, before they are asked for.
  __device__ __forceinline__ void Expect(uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     Address(&barrier)),
                 "r"(bytes)
                 : "memory");
  }
  /// All three multiples of 16; some bytes.
  __device__ __forceinline__ void Start(void* to, const void* from,
                                        uint32_t bytes) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1], %2, [%3];" ::"r"(Address(to)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(Address(&barrier))
        : "memory");
  }
  /// Returns when all has come.
  __device__ __forceinline__ void Await() {
    const uint32_t at = Address(&barrier);
    uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{\n"
          ".reg .pred complete;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], 0;\n"
          "selp.u32 %0, 1, 0, complete;\n"
          "}\n"
          : "=r"(done)
          : "r"(at)
          : "memory");
    }
  }

 private:
  static __device__ __forceinline__ uint32_t Address(const void* shared) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  }
};

}  // namespace signet::backend::gpu
