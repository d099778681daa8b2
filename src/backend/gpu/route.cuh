#pragma once
// Softmax top-k of one row by one warp: of the plain route and of the launch
// that goes on to the experts' products. Device code only.

#include <cstdint>

#include "backend/gpu/math.cuh"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

inline constexpr unsigned kRouteLanes = 0xffffffffu;
// Scores that a lane holds in registers: lane l those of ids 8l ... 8l + 7, so
// that of equal scores the lowest lane has the lowest id.
inline constexpr int kRouteKeys = 8;
inline constexpr int kMaxRouteInRegisters = kRouteKeys * kWarpSize;

__device__ __forceinline__ bool IsFiniteScore(float score) {
  return (__float_as_uint(score) & 0x7f800000u) != 0x7f800000u;
}

/// An unsigned number that orders finite scores; equal for both zeros, and
/// above 0, which stands for no score.
__device__ __forceinline__ uint32_t KeyOf(float score) {
  const uint32_t bits = __float_as_uint(__fadd_rn(score, 0.0f));
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float ScoreOf(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

struct RouteBest {
  uint32_t key = 0;
  int at = 0;
};

/// The greatest of a lane's keys, the first of equal ones.
__device__ __forceinline__ RouteBest
BestOf(const uint32_t (&keys)[kRouteKeys]) {
  RouteBest best[kRouteKeys];
#pragma unroll
  for (int j = 0; j < kRouteKeys; ++j) best[j] = {keys[j], j};
#pragma unroll
  for (int distance = 1; distance < kRouteKeys; distance *= 2) {
#pragma unroll
    for (int j = 0; j < kRouteKeys; j += 2 * distance) {
      if (best[j + distance].key > best[j].key) best[j] = best[j + distance];
    }
  }
  return best[0];
}

/// The best `top_k` of at most kMaxRouteInRegisters scores, best first; false
/// if any score is not finite. Lane-wise writes: call __syncwarp before reads.
__device__ __forceinline__ bool SelectInRegisters(const float* scores,
                                                  int num_experts, int top_k,
                                                  int lane, int32_t* ids,
                                                  float* selected) {
  uint32_t keys[kRouteKeys];
  bool finite = true;
  const int first = lane * kRouteKeys;
  float own[kRouteKeys];
  if (num_experts % kRouteKeys == 0 &&
      reinterpret_cast<uintptr_t>(scores) % 16 == 0) {
    float4 low = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float4 high = low;
    if (first < num_experts) {
      low = __ldcg(reinterpret_cast<const float4*>(scores + first));
      high = __ldcg(reinterpret_cast<const float4*>(scores + first) + 1);
    }
    own[0] = low.x, own[1] = low.y, own[2] = low.z, own[3] = low.w;
    own[4] = high.x, own[5] = high.y, own[6] = high.z, own[7] = high.w;
  } else {
#pragma unroll
    for (int j = 0; j < kRouteKeys; ++j) {
      own[j] = first + j < num_experts ? __ldcg(scores + first + j) : 0.0f;
    }
  }
#pragma unroll
  for (int j = 0; j < kRouteKeys; ++j) {
    finite = finite && IsFiniteScore(own[j]);
    keys[j] = first + j < num_experts ? KeyOf(own[j]) : 0;
  }
  if (!__all_sync(kRouteLanes, finite)) return false;

  RouteBest best = BestOf(keys);
  for (int k = 0; k < top_k; ++k) {
    const uint32_t top = __reduce_max_sync(kRouteLanes, best.key);
    // What is left should this lane win, while the lanes agree who does.
    uint32_t rest[kRouteKeys];
#pragma unroll
    for (int j = 0; j < kRouteKeys; ++j) rest[j] = j == best.at ? 0 : keys[j];
    const RouteBest next = BestOf(rest);
    const int winner =
        __ffs(static_cast<int>(__ballot_sync(kRouteLanes, best.key == top))) -
        1;
    if (lane == winner) {
      ids[k] = first + best.at;
      selected[k] = ScoreOf(top);
#pragma unroll
      for (int j = 0; j < kRouteKeys; ++j) keys[j] = rest[j];
      best = next;
    }
  }
  return true;
}

/// The same of any number of scores, which are read once for every k.
__device__ __forceinline__ bool SelectFromMemory(const float* scores,
                                                 int num_experts, int top_k,
                                                 int lane, int32_t* ids,
                                                 float* selected) {
  bool finite = true;
  for (int e = lane; e < num_experts; e += kWarpSize) {
    finite = finite && IsFiniteScore(__ldcg(scores + e));
  }
  if (!__all_sync(kRouteLanes, finite)) return false;
  uint32_t last = 0xffffffffu;  // above the key of every finite score
  int last_id = -1;
  for (int k = 0; k < top_k; ++k) {
    uint32_t best = 0;
    int id = num_experts;
    for (int e = lane; e < num_experts; e += kWarpSize) {
      const uint32_t key = KeyOf(__ldcg(scores + e));
      const bool is_left = key < last || (key == last && e > last_id);
      if (is_left && key > best) {
        best = key;
        id = e;
      }
    }
    last = __reduce_max_sync(kRouteLanes, best);
    last_id = static_cast<int>(__reduce_min_sync(
        kRouteLanes, static_cast<unsigned>(best == last ? id : num_experts)));
    if (lane == 0) {
      ids[k] = last_id;
      selected[k] = ScoreOf(last);
    }
  }
  return true;
}

/// The sum of e^(score - max), ids ascending.
__device__ __forceinline__ float SumOfExponentials(const float* scores,
                                                   int num_experts, float max,
                                                   int lane) {
  float sum = 0.0f;
  for (int begin = 0; begin < num_experts; begin += kWarpSize) {
    const int e = begin + lane;
    const float term =
        e < num_experts ? Exp(__fsub_rn(__ldcg(scores + e), max)) : 0.0f;
    const int count = min(kWarpSize, num_experts - begin);
    for (int i = 0; i < count; ++i) {
      sum = __fadd_rn(sum, __shfl_sync(kRouteLanes, term, i));
    }
  }
  return sum;
}

/// Routes one row (RouteArgs): ids and weights [top_k], in any memory that the
/// lanes share, written when it returns. False, and ids -1 and weights 0, if a
/// score is not finite. All lanes call it.
__device__ __forceinline__ bool RouteRow(const float* scores, int num_experts,
                                         int top_k, bool renormalise, int lane,
                                         int32_t* ids, float* weights) {
  const bool finite =
      num_experts <= kMaxRouteInRegisters
          ? SelectInRegisters(scores, num_experts, top_k, lane, ids, weights)
          : SelectFromMemory(scores, num_experts, top_k, lane, ids, weights);
  if (!finite) {
    for (int k = lane; k < top_k; k += kWarpSize) {
      ids[k] = -1;
      weights[k] = 0.0f;
    }
    __syncwarp();
    return false;
  }
  __syncwarp();
  const float max = weights[0];
  float sum =
      renormalise ? 0.0f : SumOfExponentials(scores, num_experts, max, lane);
  __syncwarp();  // all have read the first
  for (int k = lane; k < top_k; k += kWarpSize) {
    weights[k] = Exp(__fsub_rn(weights[k], max));
  }
  __syncwarp();
  if (renormalise) {
#pragma unroll 8
    for (int k = 0; k < top_k; ++k) sum = __fadd_rn(sum, weights[k]);
  }
  __syncwarp();
  for (int k = lane; k < top_k; k += kWarpSize) {
    weights[k] = __fdiv_rn(weights[k], sum);
  }
  __syncwarp();
  return true;
}

}  // namespace signet::backend::gpu
