#pragma once
// One token of the gated delta rule on a slice of one head's state, shared by
// DeltaRule and DeltaMix. Both sums over the old state are made in one pass:
//   d = beta (v - g S^T k)      o = g S^T q + (q . k) d
//   S <- g S + k d^T
// which is S^T q of the new state without a second pass over it. Device code
// only.

#include "backend/gpu/delta_config.h"
#include "backend/gpu/head_sum.cuh"
#include "backend/gpu/math.cuh"
#include "backend/kernels.h"

namespace signet::backend::gpu {

/// A row of a call and the sequence it belongs to.
struct CallRow {
  bool live;
  bool from_start;  // position 0: whatever the memory holds, the state is 0
  int64_t slot;
};

/// Row `row` < capacity. Its three values are asked for at once, which the
/// compiler would not do before it knows that the row is live.
__device__ inline CallRow FindRow(const Rows& rows, int64_t row) {
  const auto load = [](const int32_t* at) {
    return *static_cast<const volatile int32_t*>(at);
  };
  const int32_t live = load(rows.live);
  const int32_t slot = load(rows.slot + row);
  const int32_t position = load(rows.position + row);
  return {row < live, position == 0, slot};
}

/// e^x of a sum of log decays, cut to 0 below e^-80 (and for NaN).
__device__ inline float DecayOf(float x) { return x >= -80.0f ? Exp(x) : 0.0f; }

/// What a token does to the state of one value head.
struct DeltaGate {
  float beta;
  float decay;
};

/// From the token's a, and the head's a_log and dt_bias.
__device__ inline float LogDecayOf(float a, float a_log, float dt_bias) {
  return __fmul_rn(-Exp(a_log), Softplus(__fadd_rn(a, dt_bias)));
}
/// From its b as well.
__device__ inline DeltaGate GateOf(float b, float a, float a_log,
                                   float dt_bias) {
  return {Sigmoid(b), DecayOf(LogDecayOf(a, a_log, dt_bias))};
}

/// What the raw query and key of a token are multiplied by, and the product of
/// the multiplied vectors.
struct KeyFactors {
  float q;
  float k;
  float qk;
};

/// From the sums q . q, k . k and q . k, in this order.
__device__ inline KeyFactors FactorsOf(float qq, float kk, float qk,
                                       float key_dim) {
  const float q = __fmul_rn(InvSqrt(__fadd_rn(qq, 1e-6f)), InvSqrt(key_dim));
  const float k = InvSqrt(__fadd_rn(kk, 1e-6f));
  return {q, k, __fmul_rn(qk, __fmul_rn(q, k))};
}

/// The same from the vectors in shared memory, by one warp: kPadded values,
/// zeros past key_dim.
template <int kPadded>
__device__ inline KeyFactors FactorsOf(const float* q, const float* k,
                                       float key_dim) {
  static_assert(kPadded % kWarpValues == 0);
  float qq = 0;
  float kk = 0;
  float qk = 0;
#pragma unroll
  for (int base = 0; base < kPadded; base += kWarpValues) {
    const int at = base + 4 * (threadIdx.x % kWarpSize);
    const float4 q4 = *reinterpret_cast<const float4*>(q + at);
    const float4 k4 = *reinterpret_cast<const float4*>(k + at);
    qq = Dot4(q4, q4, qq);
    kk = Dot4(k4, k4, kk);
    qk = Dot4(q4, k4, qk);
  }
  return FactorsOf(WarpSum(qq), WarpSum(kk), WarpSum(qk), key_dim);
}

/// S^T k and S^T q of a slice, by the warps that share its rows.
struct PartialSums {
  float2 of[kDeltaWarps][kDeltaColumns];
};

/// The token's d of a column, from S^T k; and its output, from S^T q as well.
__device__ inline float DeltaOf(DeltaGate gate, float v, float sk) {
  return __fmul_rn(gate.beta, __fmaf_rn(-gate.decay, sk, v));
}
__device__ inline float OutputOf(DeltaGate gate, float qk, float delta,
                                 float sq) {
  return __fmaf_rn(qk, delta, __fmul_rn(gate.decay, sq));
}

/// Takes a token into one column of the state and returns its output. Thread
/// (warp, lane) of the kDeltaWarps of a slice holds rows
/// warp * kRows ... + kRows - 1 of column `lane` in s; q and k are the raw
/// vectors at those rows, in shared memory. A sum runs over the rows of a warp,
/// ascending, then over the warps. All threads of the block call it; it has one
/// block barrier, before which nothing of `partial` may still be in use.
template <int kRows>
__device__ inline float StepColumn(float (&s)[kRows], const float* q,
                                   const float* k, KeyFactors factors,
                                   DeltaGate gate, float v, int warp, int lane,
                                   PartialSums& partial) {
  float key[kRows];
  float2 sum = {0, 0};
#pragma unroll
  for (int i = 0; i < kRows; i += 4) {
    const float4 k4 = *reinterpret_cast<const float4*>(k + i);
    const float4 q4 = *reinterpret_cast<const float4*>(q + i);
    const float raw_k[4] = {k4.x, k4.y, k4.z, k4.w};
    const float raw_q[4] = {q4.x, q4.y, q4.z, q4.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      key[i + j] = __fmul_rn(raw_k[j], factors.k);
      sum.x = __fmaf_rn(key[i + j], s[i + j], sum.x);
      sum.y = __fmaf_rn(__fmul_rn(raw_q[j], factors.q), s[i + j], sum.y);
    }
  }
  partial.of[warp][lane] = sum;
  __syncthreads();
  sum = partial.of[0][lane];
#pragma unroll
  for (int w = 1; w < kDeltaWarps; ++w) {
    const float2 more = partial.of[w][lane];
    sum.x = __fadd_rn(sum.x, more.x);
    sum.y = __fadd_rn(sum.y, more.y);
  }
  const float delta = DeltaOf(gate, v, sum.x);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    s[i] = __fmaf_rn(key[i], delta, __fmul_rn(gate.decay, s[i]));
  }
  return OutputOf(gate, factors.qk, delta, sum.y);
}

}  // namespace signet::backend::gpu
