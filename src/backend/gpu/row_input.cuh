#pragma once
// The input row of decoding kernels, in shared memory as two planes, the low
// and the high halves of its octets: normed on the way where asked, in the
// thread order of Norm. Device code only.

#include <cstdint>

#include "backend/gpu/dot.cuh"
#include "backend/gpu/reduce.cuh"

namespace signet::backend::gpu {

/// weight: bf16 at a multiple of 16 bytes; null: no norm. The first block keeps
/// the normed row in `kept` unless that is null.
struct RowNorm {
  const uint4* weight;
  float offset;
  float eps;
  float* kept;
};

/// All kTeamThreads threads of a block call it; the planes are there when it
/// returns.
__device__ __forceinline__ void BringRow(const float* x, int octets,
                                         const RowNorm& norm, bool first_block,
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
    const uint4 stored = __ldg(norm.weight + q);
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
    if (norm.kept != nullptr && first_block) {
      auto* to = reinterpret_cast<float4*>(norm.kept) + 2 * q;
      to[0] = low;
      to[1] = high;
    }
  }
  __syncthreads();
}

}  // namespace signet::backend::gpu
