#pragma once
// Philox4x32-10, as backend/cpu/philox.h has it. Device code only.

#include <cstdint>

namespace signet::backend::gpu {

/// Word 0 of counter (c0, c1, 0, 0) under key (k0, k1).
__device__ inline uint32_t PhiloxWord(uint32_t c0, uint32_t c1, uint32_t k0,
                                      uint32_t k1) {
  uint32_t c2 = 0;
  uint32_t c3 = 0;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(0xD2511F53u, c0);
    const uint32_t low0 = 0xD2511F53u * c0;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, c2);
    const uint32_t low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c0;
}

/// A value of [0, 1) from the high 24 bits of a word.
__device__ inline float UnitFloat(uint32_t word) {
  return __fmul_rn(static_cast<float>(word >> 8), 0x1p-24f);
}

}  // namespace signet::backend::gpu
