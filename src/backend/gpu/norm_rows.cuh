#pragma once
// The ends of a row's norm: its weights, and where it goes. Shared by the norm
// and by launches that norm what they made. Device code only.

#include <cstdint>
#include <cstring>

#include "backend/gpu/elements.cuh"
#include "backend/gpu/reduce.cuh"
#include "backend/gpu/stored.cuh"
#include "backend/kernels.h"

namespace signet::backend::gpu {

/// What a launch leaves: rows of f32, of bf16, or both; null: not that one.
struct NormedRows {
  float* plain;
  uint16_t* rounded;
};

/// Eight weights as stored.
template <typename T>
struct StoredOctet {
  uint4 bits[8 * sizeof(T) / sizeof(uint4)];
};

/// Octet `q` of the weights, zeros past them. They are weights, so they may be
/// read before the inputs are there.
template <typename T>
__device__ __forceinline__ StoredOctet<T> LoadWeights(const NormArgs& args,
                                                      int64_t q, bool vectors) {
  StoredOctet<T> octet;
  if (vectors) {
    constexpr int kLoads = sizeof(octet) / sizeof(uint4);
    const auto* from = static_cast<const uint4*>(args.weight.data) + kLoads * q;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) octet.bits[i] = __ldg(from + i);
    return octet;
  }
  const T* from = static_cast<const T*>(args.weight.data);
  T values[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    values[i] = 8 * q + i < args.width ? from[8 * q + i] : T(0.0f);
  }
  std::memcpy(&octet, values, sizeof(octet));
  return octet;
}

/// With their offset.
template <typename T>
__device__ __forceinline__ Octet Offset(const StoredOctet<T>& octet,
                                        float offset) {
  T values[8];
  std::memcpy(values, &octet, sizeof(octet));
  float w[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) w[i] = __fadd_rn(offset, ToFloat(values[i]));
  return {make_float4(w[0], w[1], w[2], w[3]),
          make_float4(w[4], w[5], w[6], w[7])};
}

/// `at`: the first element of the row.
__device__ __forceinline__ void StoreOctet(const Octet& v,
                                           const NormedRows& out, int64_t at,
                                           int64_t width, int64_t q,
                                           bool vectors) {
  if (vectors) {
    if (out.plain != nullptr) {
      auto* to = reinterpret_cast<float4*>(out.plain + at) + 2 * q;
      to[0] = v.low;
      to[1] = v.high;
    }
    if (out.rounded != nullptr) {
      const ushort4 halves[2] = {RoundedBits(v.low), RoundedBits(v.high)};
      uint4 bits;
      std::memcpy(&bits, halves, sizeof(bits));
      reinterpret_cast<uint4*>(out.rounded + at)[q] = bits;
    }
    return;
  }
  const float values[8] = {v.low.x,  v.low.y,  v.low.z,  v.low.w,
                           v.high.x, v.high.y, v.high.z, v.high.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (8 * q + i >= width) break;
    if (out.plain != nullptr) out.plain[at + 8 * q + i] = values[i];
    if (out.rounded != nullptr) {
      out.rounded[at + 8 * q + i] = RoundedBits(values[i]);
    }
  }
}

}  // namespace signet::backend::gpu
