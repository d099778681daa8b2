#pragma once
// An f32 number as the sum of three bf16 ones, which tensor cores multiply
// exactly. Device code only.

#include <cstdint>

namespace signet::backend::gpu {

inline constexpr int kBF16Parts = 3;

/// Cuts x into bf16 numbers that add up to it, the largest first, each in the
/// upper half of its word.
__device__ __forceinline__ void Cut(float x, uint32_t (&bits)[kBF16Parts]) {
#pragma unroll
  for (int p = 0; p < kBF16Parts; ++p) {
    bits[p] = __float_as_uint(x) & 0xffff0000u;
    x = __fsub_rn(x, __uint_as_float(bits[p]));
  }
}

/// Two numbers, the first in the lower halves.
__device__ __forceinline__ void CutPair(float first, float second,
                                        uint32_t (&words)[kBF16Parts]) {
  uint32_t low[kBF16Parts];
  uint32_t high[kBF16Parts];
  Cut(first, low);
  Cut(second, high);
#pragma unroll
  for (int p = 0; p < kBF16Parts; ++p) words[p] = low[p] >> 16 | high[p];
}

}  // namespace signet::backend::gpu
