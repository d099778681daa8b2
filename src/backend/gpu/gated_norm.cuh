#pragma once
// The gated RMS norm of one head, shared by GatedNorm and DeltaMix. Device code
// only.

#include <cstdint>

#include "backend/gpu/elements.cuh"
#include "backend/gpu/head_sum.cuh"
#include "backend/gpu/math.cuh"

namespace signet::backend::gpu {

/// (mean of squares + eps)^(-1/2), from the sum of squares of `dim` values.
__device__ inline float InvRms(float sum_squares, int dim, float eps) {
  return InvSqrt(
      __fadd_rn(__fdiv_rn(sum_squares, static_cast<float>(dim)), eps));
}

/// w * (o * inv) * silu(z), in this order.
__device__ inline float GateNormed(float o, float inv, float w, float z) {
  return __fmul_rn(__fmul_rn(w, __fmul_rn(o, inv)), Silu(z));
}

/// A head of kWarpValues values by one warp, four a lane.
__device__ inline float4 NormHead(float4 o, float4 z, float4 w, float eps) {
  const float inv = InvRms(WarpSum(Dot4(o, o, 0.0f)), kWarpValues, eps);
  return {GateNormed(o.x, inv, w.x, z.x), GateNormed(o.y, inv, w.y, z.y),
          GateNormed(o.z, inv, w.z, z.z), GateNormed(o.w, inv, w.w, z.w)};
}

/// Four values of a head to element `at` of `rounded`, unless that is null, or
/// of `out`.
__device__ inline void StoreHead(float4 v, float* out, uint16_t* rounded,
                                 int64_t at) {
  if (rounded != nullptr) {
    *reinterpret_cast<ushort4*>(rounded + at) = RoundedBits(v);
  } else {
    *reinterpret_cast<float4*>(out + at) = v;
  }
}

}  // namespace signet::backend::gpu
