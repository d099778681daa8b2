#pragma once
// The one place that names a GPU vendor's runtime: neutral names for what the
// backend uses of it, for CUDA today. Includes nothing that nvcc cannot parse.

#include <cuda_runtime.h>

#include <cstdint>

namespace signet::backend::gpu {

using Stream = cudaStream_t;
using Event = cudaEvent_t;
using Graph = cudaGraph_t;
using GraphExec = cudaGraphExec_t;
using Status = cudaError_t;
inline constexpr Status kOk = cudaSuccess;

/// Threads that run in lockstep and exchange registers.
inline constexpr int kWarpSize = 32;

#ifdef __CUDACC__

/// Returns when all earlier launches of the stream are complete and what they
/// wrote can be read.
__device__ inline void WaitForEarlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets the next launch of the stream start its blocks once every block of this
/// one has called it or ended. Only after WaitForEarlier: a launch relies on it
/// that all launches before its predecessor are complete when it starts.
__device__ inline void LetNextStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Both: every kernel calls this, or each of them, in every thread before it
/// touches anything but weights and what is older than its predecessor.
__device__ inline void DependencyWait() {
  WaitForEarlier();
  LetNextStart();
}

/// Launches `kernel`, allowed to start before its predecessor ends: it calls
/// DependencyWait.
template <typename... Parameters, typename... Arguments>
Status Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block,
              size_t shared_bytes, Stream stream, Arguments&&... arguments) {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel,
                            static_cast<Parameters>(arguments)...);
}

#endif  // __CUDACC__

}  // namespace signet::backend::gpu
