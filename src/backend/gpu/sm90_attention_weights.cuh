#pragma once
// The weights of a tile of keys, as a warpgroup's threads hold its scores.
// Device code only, Hopper.

#include <cstdint>

#include "backend/gpu/sm80_attention_mma.cuh"
#include "backend/gpu/sm90_wgmma.cuh"

namespace signet::backend::gpu {

/// Keys of a tile. Tiles begin at multiples of it from position 0.
inline constexpr int kFlashKeys = 64;

/// The greater; NaN if one is.
__device__ __forceinline__ float MaxOrNaN(float a, float b) {
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
}

/// e^x for each x, up to 80: the bits of Exp (math.cuh), but 0 where that would
/// be less than 2^-126.5. NaN for NaN. Step by step for all of them: one waits
/// for itself most of the time.
template <int kCount>
__device__ __forceinline__ void ExpOfScores(float (&x)[kCount]) {
  // Added to a number of less than 22 bits, leaves its nearest integer, to
  // even, in the low bits.
  constexpr float kWhole = 12582912.0f;
  float sum[kCount];
  float p[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    // The least has the power of two -127, whose exponent bits are those of 0.
    x[i] = MaxOrNaN(x[i], -88.0f);
    sum[i] = __fadd_rn(__fmul_rn(x[i], 1.44269504f), kWhole);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float nf = __fsub_rn(sum[i], kWhole);
    x[i] = __fmaf_rn(-nf, 0.693145751953125f, x[i]);
    x[i] = __fmaf_rn(-nf, 1.428606765330187e-6f, x[i]);
    p[i] = 1.98527617e-4f;
  }
  const auto add_term = [&](float term) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) p[i] = __fmaf_rn(p[i], x[i], term);
  };
  add_term(1.39304355e-3f);
  add_term(8.33336078e-3f);
  add_term(4.16664854e-2f);
  add_term(1.66666672e-1f);
  add_term(0.5f);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    p[i] = __fmaf_rn(__fmul_rn(x[i], x[i]), p[i], x[i]);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const uint32_t power = (__float_as_uint(sum[i]) << 23) + 0x3f800000u;
    x[i] = __fmul_rn(__fadd_rn(1.0f, p[i]), __uint_as_float(power));
  }
}
__device__ __forceinline__ float ExpOfScore(float x) {
  float one[1] = {x};
  ExpOfScores(one);
  return one[0];
}

/// 1 / (1 + e^-x) within 3 units in the last place, 0 below -87.7. Unlike
/// Sigmoid (math.cuh) it has no branch, as a division has, so that many run
/// together.
__device__ __forceinline__ float SigmoidOfGate(float x) {
  const float e = ExpOfScore(-fabsf(x));
  const float y = __fadd_rn(1.0f, e);
  // 1 / y, an eighth off at most; then what is left of its error is cubed
  // twice, and at last removed.
  float r = __uint_as_float(0x7ef311c7u - __float_as_uint(y));
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float left = __fmaf_rn(-y, r, 1.0f);
    r = __fmaf_rn(r, __fmaf_rn(left, left, left), r);
  }
  r = __fmaf_rn(r, __fmaf_rn(-y, r, 1.0f), r);
  return x < 0.0f ? __fmul_rn(e, r) : r;
}

/// The softmax of a thread's two rows, so far: of warp w, lane l of a warpgroup
/// row h is 16 w + l / 4 + 8 h, and the four lanes of a row share it by columns
/// (see sm90_wgmma.cuh for the registers of scores).
class RowWeights {
 public:
  __device__ RowWeights(float scale, int32_t position0, int32_t position1)
      : scale_(scale), position_{position0, position1} {}

  /// Scores of the tile that begins at `first` to weights under the rows' new
  /// maxima. `masked` unless both rows see all of it. Says whether what has
  /// been summed is to be scaled, by Factor: by no row whose maximum stays.
  __device__ __forceinline__ bool Weigh(int first, bool masked,
                                        float (&scores)[32]) {
#pragma unroll
    for (float& score : scores) score = __fmul_rn(score, scale_);
    if (masked) Mask(first, scores);
    float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      most[i / 2 % 2] = fmaxf(most[i / 2 % 2], scores[i]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      most[h] = fmaxf(most[h], __shfl_xor_sync(kLanes, most[h], 1));
      most[h] = fmaxf(most[h], __shfl_xor_sync(kLanes, most[h], 2));
      most[h] = fmaxf(most[h], max_[h]);
      factor_[h] = __fsub_rn(max_[h], most[h]);
      max_[h] = most[h];
    }
    ExpOfScores(factor_);
    float added[2] = {};
#pragma unroll
    for (int i = 0; i < 32; i += kTogether) {
      float x[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        x[k] = __fsub_rn(scores[i + k], most[k / 2 % 2]);
      }
      ExpOfScores(x);
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        scores[i + k] = x[k];
        added[k / 2 % 2] = __fadd_rn(added[k / 2 % 2], x[k]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      total_[h] = __fmaf_rn(total_[h], factor_[h], added[h]);
    }
    return __any_sync(kLanes, factor_[0] != 1.0f || factor_[1] != 1.0f) != 0;
  }

  /// Never true, which the compiler does not know.
  __device__ __forceinline__ bool Broken() const {
    return total_[0] < 0.0f || total_[1] < 0.0f;
  }

  __device__ __forceinline__ float Factor(int h) const { return factor_[h]; }

  /// Of all the row's weights; by all lanes.
  __device__ __forceinline__ float Total(int h) const {
    float all = total_[h];
    all = __fadd_rn(all, __shfl_xor_sync(kLanes, all, 1));
    return __fadd_rn(all, __shfl_xor_sync(kLanes, all, 2));
  }

 private:
  static constexpr unsigned kLanes = 0xffffffff;
  static constexpr int kTogether = 4;

  __device__ __forceinline__ void Mask(int first, float (&scores)[32]) const {
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int last = position_[i / 2 % 2] - first - column;
      if (i / 4 * 8 + i % 2 > last) scores[i] = -INFINITY;
    }
  }

  const float scale_;
  const int32_t position_[2];
  float max_[2] = {-INFINITY, -INFINITY};
  float factor_[2] = {1.0f, 1.0f};
  float total_[2] = {};  // of the lane's columns
};

/// Weights, rounded, as first operands of the products with values.
struct RoundedWeights {
  uint32_t step[kFlashKeys / kWarpgroupStep][4];

  __device__ __forceinline__ void Set(const float (&weights)[32]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      step[i / 4][i % 4] = PackBF16(weights[2 * i], weights[2 * i + 1]);
    }
  }
};

}  // namespace signet::backend::gpu
