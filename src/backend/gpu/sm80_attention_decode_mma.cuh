#pragma once
// The tensor-core product of few keys that decode attention uses. Device code
// only.

#include <cstdint>

namespace signet::backend::gpu {

/// d += a b by one warp: a [16, 8] by rows, b [8, 8] by columns, bf16 pairs; d
/// [16, 8] in f32. Lane (g, t) holds, with g = lane / 4 and t = lane % 4,
///   a: (g, 2t..), (g + 8, 2t..)
///   b: (2t.., g)
///   d: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
/// where x.. is the pair x (low half), x + 1.
__device__ inline void MultiplyAdd8(float (&d)[4], uint32_t a0, uint32_t a1,
                                    uint32_t b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(b));
}

}  // namespace signet::backend::gpu
