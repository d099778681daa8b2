#pragma once
// Sums over one head by one warp, in one order for every kernel of the DeltaNet
// mixer: of each 128 values lane l adds values 4l ... 4l + 3, ascending, and
// the lanes are added by a tree (distances 16, 8, 4, 2, 1). Device code only.

#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// Values a warp holds at a time, four a lane.
inline constexpr int kWarpValues = 4 * kWarpSize;

/// The sum over the lanes, the same bits in each: both partners of a step add
/// the same two values.
__device__ inline float WarpSum(float x) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    x = __fadd_rn(x, __shfl_xor_sync(~0u, x, distance));
  }
  return x;
}

/// sum + a . b, x first.
__device__ inline float Dot4(float4 a, float4 b, float sum) {
  sum = __fmaf_rn(a.x, b.x, sum);
  sum = __fmaf_rn(a.y, b.y, sum);
  sum = __fmaf_rn(a.z, b.z, sum);
  return __fmaf_rn(a.w, b.w, sum);
}

}  // namespace signet::backend::gpu
