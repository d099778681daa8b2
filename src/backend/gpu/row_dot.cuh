#pragma once
// Dot products of few input rows with whole rows of weights, a warp each: the
// order of DotWarps == 1 (dot.cuh). Decoding runs on kernels made of these;
// they are short on purpose, since a launch of ten microseconds runs through
// its code once or twice. Device code only.

#include <cstdint>

#include "backend/gpu/dot.cuh"
#include "backend/gpu/reduce.cuh"

namespace signet::backend::gpu {

/// kRows weight rows meet one input row, kOctets octets of each a lane at a
/// time; a row is a whole number of such steps.
template <int kGroupRows, int kStepOctets>
struct RowStep {
  static constexpr int kRows = kGroupRows;
  static constexpr int kOctets = kStepOctets;
  static constexpr int kElements = 8 * kWarpSize * kOctets;  // of a row
  static_assert(kRows * kOctets == 16, "sixteen loads in flight a lane");
};
using TwoRows = RowStep<2, 8>;   // rows of k * 2048
using FourRows = RowStep<4, 4>;  // rows of k * 1024

/// A warp's place among those of a grid of blocks alike: warps of the same
/// number in their blocks follow each other, so that few rows still give every
/// block some.
__device__ __forceinline__ int WarpOfGrid() {
  return static_cast<int>(threadIdx.x / kWarpSize * gridDim.x + blockIdx.x);
}
__device__ __forceinline__ int WarpsOfGrid() {
  return static_cast<int>(gridDim.x * (blockDim.x / kWarpSize));
}

template <typename Step>
struct RowOctets {
  uint4 at[Step::kRows][Step::kOctets];
};

/// `rows[r]` points at this lane's first octet of row r; nothing is waited for.
template <typename Step>
__device__ __forceinline__ void LoadStep(const char* const (&rows)[Step::kRows],
                                         RowOctets<Step>& octets) {
#pragma unroll
  for (int r = 0; r < Step::kRows; ++r) {
#pragma unroll
    for (int j = 0; j < Step::kOctets; ++j) {
      octets.at[r][j] = LoadWeights(rows[r] + j * kWarpSize * 16);
    }
  }
}

__device__ __forceinline__ float AddOctet(const uint4& w, const float4& low,
                                          const float4& high, float sum) {
  const float4 a = VectorWeights::Half<0>(w);
  const float4 b = VectorWeights::Half<1>(w);
  sum = __fmaf_rn(a.x, low.x, sum);
  sum = __fmaf_rn(a.y, low.y, sum);
  sum = __fmaf_rn(a.z, low.z, sum);
  sum = __fmaf_rn(a.w, low.w, sum);
  sum = __fmaf_rn(b.x, high.x, sum);
  sum = __fmaf_rn(b.y, high.y, sum);
  sum = __fmaf_rn(b.z, high.z, sum);
  return __fmaf_rn(b.w, high.w, sum);
}

/// An input row in shared memory as two planes, the low and the high halves of
/// its octets.
struct PlanesInput {
  const float4* planes;
  int octets;  // of a row

  /// Of this lane: octet 32 i + lane.
  __device__ __forceinline__ Octet At(int i) const {
    const int q = i * kWarpSize + LaneOfThread();
    return {planes[q], planes[octets + q]};
  }
};

/// Adds a step, that from octet 32 * `first` of a row on.
template <typename Step, typename Input>
__device__ __forceinline__ void AddStep(const RowOctets<Step>& octets,
                                        const Input& input, int first,
                                        float (&sums)[Step::kRows]) {
#pragma unroll
  for (int j = 0; j < Step::kOctets; ++j) {
    const Octet x = input.At(first + j);
#pragma unroll
    for (int r = 0; r < Step::kRows; ++r) {
      sums[r] = AddOctet(octets.at[r][j], x.low, x.high, sums[r]);
    }
  }
}

/// Multiplies group after group of kRows weight rows with an input row each.
/// groups.Point(rows) says where the current group lies, at this lane's first
/// octet; groups.Advance() goes to the next, if there is one; groups.Input() is
/// its input row; groups.Begin() asks for what groups.Finish(value) needs
/// besides; groups.Finish(value) takes, in lane l, the product of row l / (32 /
/// kRows). `octets` holds the first step of the first group. The loads of a
/// step are under way while the sums before it are finished; warps fill each
/// other's gaps.
template <typename Step, typename Groups>
__device__ __forceinline__ void MultiplyGroupsOfRows(
    Groups& groups, int octets_of_row, const char* (&rows)[Step::kRows],
    RowOctets<Step>& octets) {
  constexpr int kStride = Step::kOctets * kWarpSize;
  bool more = true;
#pragma unroll 1
  while (more) {
    float sums[Step::kRows] = {};
    Groups current = groups;
    current.Begin();
    const auto input = current.Input();
#pragma unroll 1
    for (int q = 0; q < octets_of_row; q += kStride) {
      AddStep<Step>(octets, input, q / kWarpSize, sums);
      if (q + kStride < octets_of_row) {
#pragma unroll
        for (int r = 0; r < Step::kRows; ++r) rows[r] += kStride * 16;
      } else {
        more = groups.Advance();
        if (!more) break;
        groups.Point(rows);
      }
      LoadStep<Step>(rows, octets);
    }
    current.Finish(SumLanes(sums, LaneOfThread()));
  }
}

}  // namespace signet::backend::gpu
