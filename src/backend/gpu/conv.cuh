#pragma once
// The causal depthwise convolution of one channel, shared by Conv and DeltaMix.
// Device code only.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

#include "backend/gpu/math.cuh"
#include "backend/gpu/stored.cuh"

namespace signet::backend::gpu {

/// Taps the fast kernels are made for.
inline constexpr int kConvTaps = 4;

/// The weights of one channel.
struct Taps {
  float w[kConvTaps];
};

/// Those of channel `channel`, from an address of 16 bytes.
__device__ inline Taps LoadTaps(const float* weight, int64_t channel) {
  const float4 x = reinterpret_cast<const float4*>(weight)[channel];
  return {x.x, x.y, x.z, x.w};
}
template <typename Half>  // bf16 or f16
__device__ inline Taps LoadTaps(const Half* weight, int64_t channel) {
  const uint2 bits = reinterpret_cast<const uint2*>(weight)[channel];
  Half w[kConvTaps];
  static_assert(sizeof(w) == sizeof(bits));
  memcpy(w, &bits, sizeof(w));
  return {ToFloat(w[0]), ToFloat(w[1]), ToFloat(w[2]), ToFloat(w[3])};
}

/// The output of a channel whose columns, oldest first, are c0, c1, c2 and u.
/// Conv of other taps sums in the same order.
__device__ inline float ConvSilu(const Taps& taps, float c0, float c1, float c2,
                                 float u) {
  float sum = __fmaf_rn(taps.w[0], c0, 0.0f);
  sum = __fmaf_rn(taps.w[1], c1, sum);
  sum = __fmaf_rn(taps.w[2], c2, sum);
  return Silu(__fmaf_rn(taps.w[3], u, sum));
}

}  // namespace signet::backend::gpu
