// Kernels that only read, and numbers to multiply.

#include <cuda_bf16.h>

#include "backend/gpu/ceiling_parts.h"

namespace signet::backend::gpu {
namespace {

constexpr int kLoadsInFlight = 8;
constexpr int kFillThreads = 256;
constexpr int kFillBlocks = 1024;

__global__ void __launch_bounds__(kReadThreads)
    ReadKernel(const uint4* data, uint64_t count, uint32_t* sink) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  uint32_t seen = 0;
  for (; i + (kLoadsInFlight - 1) * stride < count;
       i += kLoadsInFlight * stride) {
    uint4 loaded[kLoadsInFlight];
#pragma unroll
    for (int l = 0; l < kLoadsInFlight; ++l) {
      loaded[l] = __ldcs(data + i + l * stride);
    }
#pragma unroll
    for (int l = 0; l < kLoadsInFlight; ++l) {
      seen ^= loaded[l].x ^ loaded[l].y ^ loaded[l].z ^ loaded[l].w;
    }
  }
  for (; i < count; i += stride) {
    const uint4 loaded = __ldcs(data + i);
    seen ^= loaded.x ^ loaded.y ^ loaded.z ^ loaded.w;
  }
  // Never, but the compiler cannot know.
  if (seen == 0x9E3779B9u) *sink = seen;
}

__global__ void __launch_bounds__(kFillThreads)
    RandomKernel(__nv_bfloat16* data, uint64_t count, uint32_t seed) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i =
           static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < count; i += stride) {
    // The finaliser of MurmurHash3.
    uint32_t x = static_cast<uint32_t>(i) ^ seed;
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    x ^= x >> 16;
    data[i] = __float2bfloat16(static_cast<float>(x) * 0x1p-31f - 1.0f);
  }
}

}  // namespace

Status LaunchRead(Stream stream, const void* data, uint64_t bytes, int blocks,
                  uint32_t* sink) {
  ReadKernel<<<blocks, kReadThreads, 0, stream>>>(
      static_cast<const uint4*>(data), bytes / sizeof(uint4), sink);
  return cudaGetLastError();
}

Status LaunchRandomBf16(Stream stream, void* data, uint64_t count,
                        uint32_t seed) {
  RandomKernel<<<kFillBlocks, kFillThreads, 0, stream>>>(
      static_cast<__nv_bfloat16*>(data), count, seed);
  return cudaGetLastError();
}

}  // namespace signet::backend::gpu
