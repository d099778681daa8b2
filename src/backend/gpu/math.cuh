#pragma once
// Mathematics of the GPU kernels: the CPU's polynomials
// (backend/cpu/math-inl.h) operation by operation, so that both give the same
// bits. No approximations of the hardware and no libm (contract N7). Device
// code only.

#include <cstdint>

namespace signet::backend::gpu {

/// e^x, within 1.5 units in the last place; 0 below -104, infinity above
/// 88.73, NaN for NaN.
__device__ inline float Exp(float x) {
  // Comparisons that keep a NaN.
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  const float nf = rintf(__fmul_rn(x, 1.44269504f));
  const int n = __float2int_rn(nf);
  float r = __fmaf_rn(-nf, 0.693145751953125f, x);
  r = __fmaf_rn(-nf, 1.428606765330187e-6f, r);
  float p = 1.98527617e-4f;
  p = __fmaf_rn(p, r, 1.39304355e-3f);
  p = __fmaf_rn(p, r, 8.33336078e-3f);
  p = __fmaf_rn(p, r, 4.16664854e-2f);
  p = __fmaf_rn(p, r, 1.66666672e-1f);
  p = __fmaf_rn(p, r, 0.5f);
  const float y = __fadd_rn(1.0f, __fmaf_rn(__fmul_rn(r, r), p, r));
  const int half = n >> 1;
  const float scale0 = __int_as_float((half + 127) << 23);
  const float scale1 = __int_as_float((n - half + 127) << 23);
  return __fmul_rn(__fmul_rn(y, scale0), scale1);
}

/// 1 / (1 + e^-x).
__device__ inline float Sigmoid(float x) {
  return __fdiv_rn(1.0f, __fadd_rn(1.0f, Exp(-x)));
}

/// x / (1 + e^-x).
__device__ inline float Silu(float x) {
  return __fdiv_rn(x, __fadd_rn(1.0f, Exp(-x)));
}

/// log(1 + x) for x in [0, 1].
__device__ inline float Log1pUnit(float x) {
  const float s = __fdiv_rn(x, __fadd_rn(2.0f, x));
  const float z = __fmul_rn(s, s);
  float p = 2.0f / 17;
  p = __fmaf_rn(p, z, 2.0f / 15);
  p = __fmaf_rn(p, z, 2.0f / 13);
  p = __fmaf_rn(p, z, 2.0f / 11);
  p = __fmaf_rn(p, z, 2.0f / 9);
  p = __fmaf_rn(p, z, 2.0f / 7);
  p = __fmaf_rn(p, z, 2.0f / 5);
  p = __fmaf_rn(p, z, 2.0f / 3);
  p = __fmul_rn(p, z);
  return __fmaf_rn(p, s, __fadd_rn(s, s));
}

/// log(1 + e^x).
__device__ inline float Softplus(float x) {
  const float rest = Log1pUnit(Exp(-fabsf(x)));
  return __fadd_rn(x > 0.0f ? x : 0.0f, rest);
}

/// x^(-1/2) with the exact square root and division.
__device__ inline float InvSqrt(float x) {
  return __fdiv_rn(1.0f, __fsqrt_rn(x));
}

struct SinCosPair {
  float sin;
  float cos;
};

/// Of an f32 angle up to 2^20, in double precision; see the CPU's.
__device__ inline SinCosPair SinCos(float angle) {
  const double x = angle;
  const double turns = __dmul_rn(x, 0.63661977236758134308);
  const int64_t n = static_cast<int64_t>(turns < 0 ? __dadd_rn(turns, -0.5)
                                                   : __dadd_rn(turns, 0.5));
  const double nd = static_cast<double>(n);
  const double r =
      __dadd_rn(__dadd_rn(x, -__dmul_rn(nd, 1.57079632673412561417)),
                -__dmul_rn(nd, 6.07710050650619224932e-11));
  const double z = r * r;
  const double s =
      r +
      r * z *
          (-1.0 / 6 +
           z * (1.0 / 120 + z * (-1.0 / 5040 +
                                 z * (1.0 / 362880 + z * (-1.0 / 39916800 +
                                                          z / 6227020800.0)))));
  const double c =
      1 - z * (0.5 - z * (1.0 / 24 -
                          z * (1.0 / 720 -
                               z * (1.0 / 40320 -
                                    z * (1.0 / 3628800 - z / 479001600.0)))));
  const double sin = (n & 1) != 0 ? c : s;
  const double cos = (n & 1) != 0 ? s : c;
  return {static_cast<float>((n & 2) != 0 ? -sin : sin),
          static_cast<float>(((n + 1) & 2) != 0 ? -cos : cos)};
}

}  // namespace signet::backend::gpu
