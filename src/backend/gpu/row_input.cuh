#pragma once
// The input row of decoding kernels, in shared memory as two planes, the low
// and the high halves of its octets: normed on the way where asked, in the
// thread order of Norm. Device code only.

#include <cstdint>

#include "backend/gpu/dot.cuh"
#include "backend/gpu/reduce.cuh"

namespace signet::backend::gpu {

/// weight: bf16 at a multiple of 16 bytes; null: no norm.
struct RowNorm {
  const uint4* weight;
  float offset;
  float eps;
  float* kept;  // the normed row, or null
};

/// The norm's weights of this thread's first octet, asked for before the input
/// is there.
struct NormStart {
  uint4 first;

  __device__ __forceinline__ NormStart(const RowNorm& norm, int octets)
      : first() {
    const int q = static_cast<int>(threadIdx.x);
    if (norm.weight != nullptr && q < octets) first = __ldg(norm.weight + q);
  }
  __device__ __forceinline__ uint4 At(const RowNorm& norm, int q) const {
    return q == static_cast<int>(threadIdx.x) ? first : __ldg(norm.weight + q);
  }
};

/// All kTeamThreads threads of a block call it; the planes are there when it
/// returns. `keeps`: whether this block writes norm.kept.
__device__ __forceinline__ void BringRow(const float* x, int octets,
                                         const RowNorm& norm,
                                         const NormStart& start, bool keeps,
                                         float4* planes) {
  __shared__ float warp_sums[kTeamWarps];
  const int thread = static_cast<int>(threadIdx.x);
  float squares = 0.0f;
#pragma unroll 1
  for (int q = thread; q < octets; q += kTeamThreads) {
    const Octet octet = LoadOctet(x, int64_t{8} * octets, q, true);
    squares = AddSquares(squares, octet);
    planes[q] = octet.low;
    planes[octets + q] = octet.high;
  }
  if (norm.weight == nullptr) {
    __syncthreads();
    return;
  }
  const float total = SumLanes(squares, LaneOfThread());
  if (LaneOfThread() == 0) warp_sums[thread / kWarpSize] = total;
  __syncthreads();
  const float inv = InvRms(warp_sums, int64_t{8} * octets, norm.eps);
#pragma unroll 1
  for (int q = thread; q < octets; q += kTeamThreads) {
    const uint4 stored = start.At(norm, q);
    const auto weights = [&](const float4& w) {
      return make_float4(
          __fadd_rn(norm.offset, w.x), __fadd_rn(norm.offset, w.y),
          __fadd_rn(norm.offset, w.z), __fadd_rn(norm.offset, w.w));
    };
    const float4 low =
        Scale(planes[q], inv, weights(VectorWeights::Half<0>(stored)));
    const float4 high =
        Scale(planes[octets + q], inv, weights(VectorWeights::Half<1>(stored)));
    planes[q] = low;
    planes[octets + q] = high;
    if (norm.kept != nullptr && keeps) {
      auto* to = reinterpret_cast<float4*>(norm.kept) + 2 * q;
      to[0] = low;
      to[1] = high;
    }
  }
  __syncthreads();
}

}  // namespace signet::backend::gpu
