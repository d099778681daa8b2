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

/// The most rows of launches that are made for few: for a token or a small
/// batch.
inline constexpr int kFewRows = 8;

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

/// The share of a multiprocessor's memory, in percent, that launches of up to
/// kFewRows rows want as shared memory. Blocks wait for a multiprocessor to run
/// empty where it has to divide its memory anew, so those that follow each
/// other agree: on what the largest of them needs.
inline constexpr int kFewRowsCarveout = 72;

/// Attributes of a launch that may start before its predecessor ends, of up to
/// `rows` rows.
struct LaunchAttributes {
  static constexpr int kMost = 3;
  cudaLaunchAttribute list[kMost] = {};
  unsigned count = 0;

  explicit LaunchAttributes(int64_t rows) {
    list[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    list[count++].val.programmaticStreamSerializationAllowed = 1;
    if (rows > kFewRows) return;
    list[count].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    list[count++].val.sharedMemCarveout = kFewRowsCarveout;
  }

  void SetCluster(int blocks) {
    list[count].id = cudaLaunchAttributeClusterDimension;
    cudaLaunchAttribute& shape = list[count++];
    shape.val.clusterDim.x = static_cast<unsigned>(blocks);
    shape.val.clusterDim.y = 1;
    shape.val.clusterDim.z = 1;
  }
};

/// Launches `kernel` with `attributes`: it calls DependencyWait.
template <typename... Parameters, typename... Arguments>
Status LaunchAs(LaunchAttributes attributes, void (*kernel)(Parameters...),
                dim3 grid, dim3 block, size_t shared_bytes, Stream stream,
                Arguments&&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes.list;
  config.numAttrs = attributes.count;
  return cudaLaunchKernelEx(&config, kernel,
                            static_cast<Parameters>(arguments)...);
}

/// Of up to `rows` rows.
template <typename... Parameters, typename... Arguments>
Status LaunchRows(int64_t rows, void (*kernel)(Parameters...), dim3 grid,
                  dim3 block, size_t shared_bytes, Stream stream,
                  Arguments&&... arguments) {
  return LaunchAs(LaunchAttributes(rows), kernel, grid, block, shared_bytes,
                  stream, arguments...);
}

/// In clusters of `cluster` blocks, of which the grid is whole ones.
template <typename... Parameters, typename... Arguments>
Status LaunchClusters(int cluster, void (*kernel)(Parameters...), dim3 grid,
                      dim3 block, size_t shared_bytes, Stream stream,
                      Arguments&&... arguments) {
  LaunchAttributes attributes(kFewRows + 1);
  attributes.SetCluster(cluster);
  return LaunchAs(attributes, kernel, grid, block, shared_bytes, stream,
                  arguments...);
}

/// Of any number of rows.
template <typename... Parameters, typename... Arguments>
Status Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block,
              size_t shared_bytes, Stream stream, Arguments&&... arguments) {
  return LaunchRows(kFewRows + 1, kernel, grid, block, shared_bytes, stream,
                    arguments...);
}

#endif  // __CUDACC__

}  // namespace signet::backend::gpu
