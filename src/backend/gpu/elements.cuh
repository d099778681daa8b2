#pragma once
// Elements that ops treat alike, one or four at a time, and their rounding to
// bf16. Device code only.

#include <cstdint>

#include "backend/gpu/math.cuh"

namespace signet::backend::gpu {

template <int kFloats>
struct Floats {
  float v[kFloats];
};

/// Activations are written by earlier launches, so they never pass the
/// read-only path.
template <int kFloats>
__device__ __forceinline__ Floats<kFloats> LoadFloats(const float* from) {
  Floats<kFloats> out;
  if constexpr (kFloats == 4) {
    const float4 v = __ldcg(reinterpret_cast<const float4*>(from));
    out = {{v.x, v.y, v.z, v.w}};
  } else {
    out = {{__ldcg(from)}};
  }
  return out;
}

template <int kFloats>
__device__ __forceinline__ void StoreFloats(const Floats<kFloats>& v,
                                            float* to) {
  if constexpr (kFloats == 4) {
    *reinterpret_cast<float4*>(to) =
        make_float4(v.v[0], v.v[1], v.v[2], v.v[3]);
  } else {
    *to = v.v[0];
  }
}

/// f32 to bf16, nearest even; a NaN stays one, quiet.
__device__ __forceinline__ uint16_t RoundedBits(float x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t half = 0x7fff + ((bits >> 16) & 1);
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40
                                      : (bits + half) >> 16);
}

__device__ __forceinline__ ushort4 RoundedBits(const float4& v) {
  return make_ushort4(RoundedBits(v.x), RoundedBits(v.y), RoundedBits(v.z),
                      RoundedBits(v.w));
}

template <int kFloats>
__device__ __forceinline__ void StoreRounded(const Floats<kFloats>& v,
                                             uint16_t* to) {
  if constexpr (kFloats == 4) {
    *reinterpret_cast<ushort4*>(to) =
        RoundedBits(make_float4(v.v[0], v.v[1], v.v[2], v.v[3]));
  } else {
    *to = RoundedBits(v.v[0]);
  }
}

/// silu(gate) * up.
template <int kFloats>
__device__ __forceinline__ Floats<kFloats> Activated(
    const Floats<kFloats>& gate, const Floats<kFloats>& up) {
  Floats<kFloats> out;
#pragma unroll
  for (int k = 0; k < kFloats; ++k) {
    out.v[k] = __fmul_rn(Silu(gate.v[k]), up.v[k]);
  }
  return out;
}

/// addend + gate * x, one fused multiply-add.
__device__ __forceinline__ float GatedSum(float addend, float gate, float x) {
  return __fmaf_rn(gate, x, addend);
}

}  // namespace signet::backend::gpu
