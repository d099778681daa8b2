#pragma once
// Blocks of one cluster: their barrier, and messages into each other's shared
// memory. Device code only, Hopper.

#include <cstdint>

#include "backend/gpu/sm90_barrier.cuh"

namespace signet::backend::gpu {

/// Announces that this thread got here; each thread of the cluster calls it,
/// then ClusterWait. Orders the setup of mailboxes, but no other memory: what
/// was loaded before must have been used before.
__device__ inline void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

/// Returns when every thread of the cluster has arrived.
__device__ inline void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// All threads of a cluster of kBlocks blocks meet; nothing if it is one.
template <int kBlocks>
__device__ inline void MeetCluster() {
  if constexpr (kBlocks > 1) {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    ClusterWait();
  }
}

/// Shared memory that other blocks of the cluster send values to, a known
/// number of them, once.
template <int kValues>
struct Mailbox {
  alignas(16) float values[kValues];
  Barrier barrier;

  /// By one thread of the receiving block, before it arrives at the barrier of
  /// the cluster.
  __device__ void Open() { barrier.Open(1); }
  /// By one thread of the receiving block, once, after a barrier of the block
  /// that follows Open. Values may have come.
  __device__ void Expect() { barrier.Expect(kValues * 4); }

  /// Sends a value to place `i` of this mailbox in block `rank`, which has not
  /// ended: it awaits the value. After ClusterWait.
  __device__ void Send(int rank, int i, float value) {
    uint32_t to;
    uint32_t signal;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(to)
                 : "r"(Barrier::Address(values + i)), "r"(rank));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(signal)
                 : "r"(Barrier::Address(&barrier)), "r"(rank));
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 "
        "[%0], %1, [%2];" ::"r"(to),
        "r"(__float_as_uint(value)), "r"(signal)
        : "memory");
  }

  /// Returns when all values have come.
  __device__ void Await() {
    const uint32_t at = Barrier::Address(&barrier);
    uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{\n"
          ".reg .pred complete;\n"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 "
          "complete, [%1], 0;\n"
          "selp.u32 %0, 1, 0, complete;\n"
          "}\n"
          : "=r"(done)
          : "r"(at)
          : "memory");
    }
  }
};

}  // namespace signet::backend::gpu
