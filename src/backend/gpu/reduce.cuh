#pragma once
// Sums across the threads of a warp or a block in one fixed order, and the
// square sum of a row of a norm: shared by the plain and the fused kernels, so
// that both give the same bits. Device code only.

#include <cstdint>

#include "backend/gpu/math.cuh"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// Threads that reduce one row, and the warps they are.
inline constexpr int kTeamThreads = 256;
inline constexpr int kTeamWarps = kTeamThreads / kWarpSize;
inline constexpr unsigned kAllLanes = 0xffffffffu;

/// This thread among the kThreads of its warp or team.
template <int kThreads>
__device__ __forceinline__ int ThreadOf() {
  return static_cast<int>(threadIdx.x % static_cast<unsigned>(kThreads));
}
__device__ __forceinline__ int LaneOfThread() { return ThreadOf<kWarpSize>(); }

template <int kDistance, int kValues>
__device__ __forceinline__ float SumAcross(const float (&values)[kValues],
                                           int lane) {
  if constexpr (kDistance == 0) {
    return values[0];
  } else if constexpr (kValues == 1) {
    const float sum[1] = {
        __fadd_rn(values[0], __shfl_xor_sync(kAllLanes, values[0], kDistance))};
    return SumAcross<kDistance / 2>(sum, lane);
  } else {
    constexpr int kHalf = kValues / 2;
    const bool upper = (lane & kDistance) != 0;
    float sums[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float kept = upper ? values[i + kHalf] : values[i];
      const float given = upper ? values[i] : values[i + kHalf];
      sums[i] = __fadd_rn(kept, __shfl_xor_sync(kAllLanes, given, kDistance));
    }
    return SumAcross<kDistance / 2>(sums, lane);
  }
}

/// The sums of kValues values (a power of two up to 32) over the lanes of a
/// warp: lanes at distance 16 are added, then at 8, 4, 2, 1. Lane l gets the
/// sum of value l / (32 / kValues). Every value is summed by the same tree,
/// whatever kValues is.
template <int kValues>
__device__ __forceinline__ float SumLanes(const float (&values)[kValues],
                                          int lane) {
  static_assert(kValues <= kWarpSize && (kValues & (kValues - 1)) == 0);
  return SumAcross<kWarpSize / 2>(values, lane);
}

__device__ __forceinline__ float SumLanes(float value, int lane) {
  const float values[1] = {value};
  return SumLanes(values, lane);
}

/// The sums of the eight warps of a team, `stride` apart.
__device__ __forceinline__ float SumWarps(const float* sums, int stride) {
  float s[kTeamWarps];
#pragma unroll
  for (int i = 0; i < kTeamWarps; ++i) s[i] = sums[i * stride];
  return __fadd_rn(__fadd_rn(__fadd_rn(s[0], s[1]), __fadd_rn(s[2], s[3])),
                   __fadd_rn(__fadd_rn(s[4], s[5]), __fadd_rn(s[6], s[7])));
}

/// Eight consecutive values; octet q holds values 8q ... 8q + 7. Octet q of a
/// row that a team reduces belongs to thread q mod 256.
struct Octet {
  float4 low;
  float4 high;
};

/// Octet `q` of `count` values, zeros past them. Activations are written by
/// earlier launches, so they never pass the read-only path.
__device__ __forceinline__ Octet LoadOctet(const float* x, int64_t count,
                                           int64_t q, bool vectors) {
  if (vectors) {
    const auto* from = reinterpret_cast<const float4*>(x) + 2 * q;
    return {__ldcg(from), __ldcg(from + 1)};
  }
  float v[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    v[i] = 8 * q + i < count ? __ldcg(x + 8 * q + i) : 0.0f;
  }
  return {make_float4(v[0], v[1], v[2], v[3]),
          make_float4(v[4], v[5], v[6], v[7])};
}

/// sum + the squares of an octet, in order.
__device__ __forceinline__ float AddSquares(float sum, const Octet& x) {
  sum = __fmaf_rn(x.low.x, x.low.x, sum);
  sum = __fmaf_rn(x.low.y, x.low.y, sum);
  sum = __fmaf_rn(x.low.z, x.low.z, sum);
  sum = __fmaf_rn(x.low.w, x.low.w, sum);
  sum = __fmaf_rn(x.high.x, x.high.x, sum);
  sum = __fmaf_rn(x.high.y, x.high.y, sum);
  sum = __fmaf_rn(x.high.z, x.high.z, sum);
  return __fmaf_rn(x.high.w, x.high.w, sum);
}

/// The factor of an RMS norm from its row's eight warp sums of squares.
__device__ __forceinline__ float InvRms(const float* warp_sums, int64_t width,
                                        float eps) {
  const float mean =
      __fdiv_rn(SumWarps(warp_sums, 1), static_cast<float>(width));
  return InvSqrt(__fadd_rn(mean, eps));
}

/// x * inv * w, with w the norm's offset weights.
__device__ __forceinline__ float4 Scale(const float4& x, float inv,
                                        const float4& w) {
  return make_float4(
      __fmul_rn(__fmul_rn(x.x, inv), w.x), __fmul_rn(__fmul_rn(x.y, inv), w.y),
      __fmul_rn(__fmul_rn(x.z, inv), w.z), __fmul_rn(__fmul_rn(x.w, inv), w.w));
}

}  // namespace signet::backend::gpu
