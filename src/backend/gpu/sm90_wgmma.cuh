#pragma once
// Products of a warpgroup (four warps) on Hopper's tensor cores, operands in
// shared memory as rows of 64 bf16, 128 bytes each: piece c of 16 bytes of row
// r lies at piece c ^ (r % 8), and row 0 at a multiple of 1,024 bytes; the
// first operand may be in registers. Device code only.

#include <cstdint>

namespace signet::backend::gpu {

inline constexpr int kWarpgroupThreads = 128;
/// Rows of the first operand that a warpgroup multiplies, and elements of both
/// that an instruction takes.
inline constexpr int kWarpgroupRows = 64;
inline constexpr int kWarpgroupStep = 16;

/// All four warps of a warpgroup change how many registers each thread has: a
/// multiple of 8, less than it began with or more.
template <int kRegisters>
__device__ __forceinline__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// How an operand lies from `shared` on (PTX: matrix descriptor): groups of
/// eight rows 1,024 bytes apart, pieces permuted as above.
__device__ __forceinline__ uint64_t OperandAt(uint32_t shared) {
  constexpr uint64_t kPermuted128 = uint64_t{1} << 62;
  constexpr uint64_t kGroupBytes = uint64_t{1024 >> 4} << 32;
  return kPermuted128 | kGroupBytes | uint64_t{1} << 16 |
         (shared >> 4 & 0x3fff);
}
/// The operand `elements` further along its rows, a multiple of kWarpgroupStep.
__device__ __forceinline__ uint64_t Along(uint64_t operand, int elements) {
  return operand + static_cast<uint64_t>(elements * 2 >> 4);
}

/// A second operand whose rows of 64 are what is summed over (PTX: N-major):
/// 64 columns in rows from `shared` on, the next 64 `place_bytes` further. Of
/// this layout PTX gives ((8, 8, m), (8, k)) : ((1, 8, leading), (64, stride)),
/// columns first: `leading` is from 64 columns to the next, `stride` from eight
/// rows to the next.
__device__ __forceinline__ uint64_t TurnedAt(uint32_t shared,
                                             uint32_t place_bytes) {
  constexpr uint64_t kPermuted128 = uint64_t{1} << 62;
  constexpr uint64_t kGroupBytes = uint64_t{1024 >> 4} << 32;
  return kPermuted128 | kGroupBytes | uint64_t{place_bytes >> 4} << 16 |
         (shared >> 4 & 0x3fff);
}
/// The operand `rows` further down, a multiple of kWarpgroupStep.
__device__ __forceinline__ uint64_t Down(uint64_t operand, int rows) {
  return operand + static_cast<uint64_t>(rows * 128 >> 4);
}

/// Before products whose sums this thread has touched otherwise.
__device__ __forceinline__ void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/// Closes the products asked for since the last call.
__device__ __forceinline__ void EndProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits for all closed products but the `kPending` latest.
template <int kPending>
__device__ __forceinline__ void WaitProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
/// Keeps what makes these sums before it and what uses them after it: around
/// waits, which the compiler does not know to concern them.
__device__ __forceinline__ void Pin(float (&sums)[32]) {
#pragma unroll
  for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");
}
/// Lets products read what copies have brought to shared memory: by a thread
/// that has waited for these, and is waited for by who asks for the products.
__device__ __forceinline__ void ShowCopies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Sums of 64 columns are 32 registers: of warp w, lane l, register 4 j + 2 h +
// c is row 16 w + l / 4 + 8 h, column 8 j + 2 (l % 4) + c.
#define SIGNET_SUMS4(d, i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SIGNET_SUMS16(d, i)                                           \
  SIGNET_SUMS4(d, i), SIGNET_SUMS4(d, i + 4), SIGNET_SUMS4(d, i + 8), \
      SIGNET_SUMS4(d, i + 12)
#define SIGNET_SUMS32(d) SIGNET_SUMS16(d, 0), SIGNET_SUMS16(d, 16)
#define SIGNET_NEW4(d, i) \
  "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3])
#define SIGNET_NEW16(d, i)                                         \
  SIGNET_NEW4(d, i), SIGNET_NEW4(d, i + 4), SIGNET_NEW4(d, i + 8), \
      SIGNET_NEW4(d, i + 12)
#define SIGNET_NEW32(d) SIGNET_NEW16(d, 0), SIGNET_NEW16(d, 16)

/// 64 rows of `a` with 32, 64, 128 or 256 rows of `b`, kWarpgroupStep elements.
__device__ __forceinline__ void Multiply32(float (&d0)[32], uint64_t a,
                                           uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
      "%12, %13, %14, %15}, "
      "%16, %17, 1, 1, 1, 0, 0;"
      : SIGNET_SUMS16(d0, 0)
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void Multiply64(float (&d0)[32], uint64_t a,
                                           uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
      "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, 1, 1, 1, 0, 0;"
      : SIGNET_SUMS32(d0)
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void Multiply128(float (&d0)[32], float (&d1)[32],
                                            uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
      "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
      "%60, %61, %62, %63}, "
      "%64, %65, 1, 1, 1, 0, 0;"
      : SIGNET_SUMS32(d0), SIGNET_SUMS32(d1)
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void Multiply256(float (&d0)[32], float (&d1)[32],
                                            float (&d2)[32], float (&d3)[32],
                                            uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
      "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "
      "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "
      "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "
      "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, "
      "%120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, 1, 1, 1, 0, 0;"
      : SIGNET_SUMS32(d0), SIGNET_SUMS32(d1), SIGNET_SUMS32(d2),
        SIGNET_SUMS32(d3)
      : "l"(a), "l"(b));
}

/// The same of 64 rows, without what the sums were before.
__device__ __forceinline__ void Multiply64Alone(float (&d0)[32], uint64_t a,
                                                uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
      "%30, %31}, "
      "%32, %33, 0, 1, 1, 0, 0;"
      : SIGNET_NEW32(d0)
      : "l"(a), "l"(b));
}

/// 64 rows of `a`, in registers, with 128 or 256 columns of `b`, kWarpgroupStep
/// rows that lie as TurnedAt says. Of warp w, lane l, a[h] holds elements 2 (l
/// % 4) and the next, low half first, of row 16 w + l / 4 + 8 h, and a[2 + h]
/// the two eight further: sums of 16 columns, rounded in pairs, in their order.
__device__ __forceinline__ void MultiplyTurned128(float (&d0)[32],
                                                  float (&d1)[32],
                                                  const uint32_t (&a)[4],
                                                  uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
      "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, "
      "%58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
      : SIGNET_SUMS32(d0), SIGNET_SUMS32(d1)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void MultiplyTurned256(
    float (&d0)[32], float (&d1)[32], float (&d2)[32], float (&d3)[32],
    const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
      "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, "
      "%58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "
      "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, "
      "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, "
      "%100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "
      "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, "
      "%122, %123, %124, %125, %126, %127}, "
      "{%128, %129, %130, %131}, %132, 1, 1, 1, 1;"
      : SIGNET_SUMS32(d0), SIGNET_SUMS32(d1), SIGNET_SUMS32(d2),
        SIGNET_SUMS32(d3)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef SIGNET_NEW32
#undef SIGNET_NEW16
#undef SIGNET_NEW4
#undef SIGNET_SUMS32
#undef SIGNET_SUMS16
#undef SIGNET_SUMS4

}  // namespace signet::backend::gpu
