#pragma once
// The tensor-core and copy instructions of attention, of the generation
// sm_80 ... sm_90. Device code only. Throughout, g = lane / 4 and t = lane % 4.

#include <cuda_bf16.h>

#include <cstdint>

namespace signet::backend::gpu {

/// d += a b by one warp: a [16, 16] by rows, b [16, 8] by columns, bf16 pairs;
/// d [16, 8] in f32. Lane (g, t) holds
///   a: (g, 2t..), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..)
///   b: (2t.., g), (2t + 8.., g)
///   d: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
/// where x.. is the pair x (low half), x + 1.
__device__ inline void MultiplyAdd(float (&d)[4], uint32_t a0, uint32_t a1,
                                   uint32_t a2, uint32_t a3, uint32_t b0,
                                   uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// Two floats as bf16, nearest even: `low` in the low half.
__device__ inline uint32_t PackBF16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return static_cast<uint32_t>(__bfloat16_as_ushort(pair.x)) |
         static_cast<uint32_t>(__bfloat16_as_ushort(pair.y)) << 16;
}

/// Two floats as sums of three bf16, exact but for underflow.
struct BF16Parts {
  uint32_t high;
  uint32_t middle;
  uint32_t low;
};
__device__ inline BF16Parts SplitBF16(float x, float y) {
  BF16Parts parts;
  parts.high = PackBF16(x, y);
  x = __fsub_rn(x, __uint_as_float(parts.high << 16));
  y = __fsub_rn(y, __uint_as_float(parts.high & 0xffff0000u));
  parts.middle = PackBF16(x, y);
  x = __fsub_rn(x, __uint_as_float(parts.middle << 16));
  y = __fsub_rn(y, __uint_as_float(parts.middle & 0xffff0000u));
  parts.low = PackBF16(x, y);
  return parts;
}

/// 16 bytes of memory that is read once and that nothing writes meanwhile;
/// zeros, and no access, unless `wanted`.
__device__ inline uint4 LoadOnce(const void* from, bool wanted) {
  uint4 value;
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.u32 wanted, %5, 0;\n"
      "mov.u32 %0, 0;\n"
      "mov.u32 %1, 0;\n"
      "mov.u32 %2, 0;\n"
      "mov.u32 %3, 0;\n"
      "@wanted ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
      "}\n"
      : "=&r"(value.x), "=&r"(value.y), "=&r"(value.z), "=&r"(value.w)
      : "l"(from), "r"(static_cast<uint32_t>(wanted)));
  return value;
}

/// Four 8 x 8 matrices of 16-bit elements from shared memory; lane i gives the
/// address of row i % 8 of matrix i / 8. Lane (g, t) receives of each the pair
/// (g, 2t..).
__device__ inline void LoadMatrices(const void* row, uint32_t (&m)[4]) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
      : "memory");
}
/// The same of the transposed matrices: the pair (2t.., g).
__device__ inline void LoadTransposed(const void* row, uint32_t (&m)[4]) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
      : "memory");
}

/// Starts a copy of 16 bytes to shared memory; zeros, and no access, unless
/// `wanted`.
__device__ inline void CopyAsync(void* to, const void* from, bool wanted) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(wanted ? 16 : 0)
               : "memory");
}
/// Ends a group of copies, maybe an empty one.
__device__ inline void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits for all of the thread's groups but the last kPending.
template <int kPending>
__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace signet::backend::gpu
