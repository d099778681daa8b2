#pragma once
// Single stored values, loaded as bits and converted later: a kernel asks for
// all it needs before it waits for any. Device code only.

#include <cuda_fp16.h>

#include <cstdint>

#include "backend/views.h"

namespace signet::backend::gpu {

/// The bits of element `i`, in the low half if its type has 16.
__device__ inline uint32_t LoadBits(const void* data, tensor::DType dtype,
                                    int64_t i) {
  return dtype == tensor::DType::kF32 ? static_cast<const uint32_t*>(data)[i]
                                      : static_cast<const uint16_t*>(data)[i];
}
__device__ inline uint32_t LoadBits(const VectorView& view, int64_t i) {
  return LoadBits(view.data, view.dtype, i);
}

/// Their value.
__device__ inline float FromBits(uint32_t bits, tensor::DType dtype) {
  if (dtype == tensor::DType::kF32) return __uint_as_float(bits);
  if (dtype == tensor::DType::kBF16) return __uint_as_float(bits << 16);
  return __half2float(__ushort_as_half(static_cast<uint16_t>(bits)));
}

/// Elements 4 * quad ... 4 * quad + 3.
struct BitsOf4 {
  uint32_t bits[4];

  __device__ void Load(const VectorView& view, int quad) {
#pragma unroll
    for (int i = 0; i < 4; ++i) bits[i] = LoadBits(view, 4 * quad + i);
  }
  __device__ float4 Value(tensor::DType dtype) const {
    return {FromBits(bits[0], dtype), FromBits(bits[1], dtype),
            FromBits(bits[2], dtype), FromBits(bits[3], dtype)};
  }
};

}  // namespace signet::backend::gpu
