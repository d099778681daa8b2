#pragma once
// RMS norm and rotary embedding of one head by one warp: the same device code,
// and so the same bits, in the op and in fused attention. Element e of a head
// is value e / 32 of lane e % 32. Device code only.

#include <cstdint>

#include "backend/gpu/math.cuh"
#include "backend/gpu/stored_bits.cuh"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// Of one pair at a position.
__device__ inline SinCosPair Rotation(float inv_freq, int32_t position) {
  return SinCos(__fmul_rn(static_cast<float>(position), inv_freq));
}

/// Reads a head of `dim` <= 32 * kValues elements; zeros past its end.
template <int kValues>
__device__ inline void LoadHead(const float* x, int dim, int lane,
                                float (&values)[kValues]) {
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const int e = lane + i * kWarpSize;
    values[i] = e < dim ? x[e] : 0.0f;
  }
}

/// The weights of a head's norm, as bits so that nothing waits for them before
/// they are used.
template <int kValues>
struct NormWeights {
  uint32_t bits[kValues];

  __device__ void Load(const VectorView& weight, int dim, int lane) {
    if (weight.dtype == tensor::DType::kF32) {
      LoadAs(static_cast<const uint32_t*>(weight.data), dim, lane);
    } else {
      LoadAs(static_cast<const uint16_t*>(weight.data), dim, lane);
    }
  }
  __device__ void Values(tensor::DType dtype, float (&values)[kValues]) const {
    // One branch for all of them.
    if (dtype == tensor::DType::kF16) {
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        values[i] = FromBits(bits[i], tensor::DType::kF16);
      }
      return;
    }
    const int shift = dtype == tensor::DType::kBF16 ? 16 : 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      values[i] = __uint_as_float(bits[i] << shift);
    }
  }

 private:
  template <typename T>
  __device__ void LoadAs(const T* weight, int dim, int lane) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const int e = lane + i * kWarpSize;
      bits[i] = e < dim ? weight[e] : 0;
    }
  }
};

/// x / n with its bits, and without a division where n is a constant power of
/// two.
__device__ inline float DividedBy(float x, int n) {
  return (n & (n - 1)) == 0 ? __fmul_rn(x, 1.0f / static_cast<float>(n))
                            : __fdiv_rn(x, static_cast<float>(n));
}

/// out = values * (mean(values^2) + eps)^(-1/2) * (1 + weights), to shared
/// memory.
template <int kValues>
__device__ inline void NormHead(const float (&values)[kValues],
                                const float (&weights)[kValues], float eps,
                                int dim, int lane, float* out) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    sum = __fmaf_rn(values[i], values[i], sum);
  }
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffff, sum, distance));
  }
  const float inverse = InvSqrt(__fadd_rn(DividedBy(sum, dim), eps));
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const int e = lane + i * kWarpSize;
    if (e >= dim) continue;
    out[e] =
        __fmul_rn(__fmul_rn(values[i], inverse), __fadd_rn(1.0f, weights[i]));
  }
}

/// The same, with weights that are not loaded yet.
template <int kValues>
__device__ inline void NormHead(const float (&values)[kValues],
                                const VectorView& weight, float eps, int dim,
                                int lane, float* out) {
  NormWeights<kValues> bits;
  bits.Load(weight, dim, lane);
  float weights[kValues];
  bits.Values(weight.dtype, weights);
  NormHead(values, weights, eps, dim, lane, out);
}

/// Rotates the pairs (i, i + half) of a head in shared memory, in place. The
/// warp synchronises before and after.
__device__ inline void RotateHead(const float* sin, const float* cos, int half,
                                  int lane, float* head) {
  for (int i = lane; i < half; i += kWarpSize) {
    const float low = head[i];
    const float high = head[i + half];
    head[i] = __fmaf_rn(-high, sin[i], __fmul_rn(low, cos[i]));
    head[i + half] = __fmaf_rn(low, sin[i], __fmul_rn(high, cos[i]));
  }
}

}  // namespace signet::backend::gpu
