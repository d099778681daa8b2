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

/// Lets the next launch of the stream start its blocks early. They must not
/// touch what this launch writes before their own DependencyWait.
__device__ inline void LetNextStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Returns when all earlier launches of the stream are complete and what they
/// wrote can be read. Every kernel calls it in every thread before it reads or
/// writes anything but weights.
__device__ inline void DependencyWait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Launches `kernel`, allowed to start before its predecessor ends; the kernel
/// must begin with DependencyWait (weights may be prefetched before it).
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
