#pragma once
// A barrier in shared memory that threads arrive at and copies complete, phase
// after phase. Device code only, Hopper.

#include <cstdint>

namespace signet::backend::gpu {

struct Barrier {
  alignas(8) uint64_t state;

  static __device__ __forceinline__ uint32_t Address(const void* shared) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  }

  /// By one thread, before a barrier of the block: `count` arrivals end a
  /// phase.
  __device__ __forceinline__ void Open(int count) {
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(Address(&state)),
        "r"(count)
        : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  /// What this thread did before is seen by those who waited for the phase.
  __device__ __forceinline__ void Arrive() {
    asm volatile(
        "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(Address(&state))
        : "memory");
  }
  /// Arrives at the barrier at this place of block `rank` of the cluster, which
  /// has not ended. Shows nothing that this thread wrote: to do so would make
  /// it wait for all its writes.
  __device__ __forceinline__ void ArriveIn(int rank) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there)
                 : "r"(Address(&state)), "r"(rank));
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there)
                 : "memory");
  }
  /// Arrives once all copies (cp.async) that this thread started before are
  /// there.
  __device__ __forceinline__ void ArriveAfterCopies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                     Address(&state))
                 : "memory");
  }
  /// Arrives, and lets the phase end only after `bytes` have come too.
  __device__ __forceinline__ void Expect(uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     Address(&state)),
                 "r"(bytes)
                 : "memory");
  }
  /// Returns once the phase of `parity` has ended: 0 the first, 1 the next, and
  /// so on by turns. One phase at most may have ended since.
  __device__ __forceinline__ void Await(int parity) {
    uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{\n"
          ".reg .pred complete;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
          "selp.u32 %0, 1, 0, complete;\n"
          "}\n"
          : "=r"(done)
          : "r"(Address(&state)), "r"(parity)
          : "memory");
    }
  }
};

}  // namespace signet::backend::gpu
