#pragma once
// What the kernels of Sample share: how a row is cut, what they leave each
// other, and the order of logits as integers.
//
// Three launches draw a row. FindBest (many blocks a row) finds the greatest
// logit of every 256 ids. GatherLikely finishes greedy rows; for the others it
// collects the ids whose logits reach a bar that enough of these groups reach,
// and sums e over all ids. DrawRow (a block a row) puts the collected ids in
// order and draws; if they do not decide the draw, it searches all logits.
//
// Where a draw can differ from the CPU's: the sum of e over all ids is a tree
// (DrawRow), the CPU's runs in order of the ids; sums over collected ids run in
// rank order on both; those of the search are trees. All are in f64, so ids
// differ only if u falls within f64 rounding of the edge between two ids. What
// a row draws depends on its logits, its parameters and the vocabulary alone.
// Device code only.

#include <cstdint>
#include <limits>

#include "backend/gpu/math.cuh"
#include "backend/gpu/vendor.h"
#include "backend/kernels.h"

namespace signet::backend::gpu {

inline constexpr int kPartThreads = 256;
inline constexpr int kPartIds = 2048;  // of a block of the first two kernels
inline constexpr int kPartWarps = kPartThreads / kWarpSize;  // groups of a part
inline constexpr int kThreadQuads = kPartIds / kPartThreads / 4;

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr int32_t kNoId = 0x7fffffff;

/// The greatest logit of some ids and the lowest id that has it; no logit is
/// -infinity and kNoId, one that is not finite makes the id negative.
struct Best {
  float logit;
  int32_t id;
};

/// Of one row of a launch, what later kernels need.
struct RowFacts {
  float greatest;
  int32_t draws;  // 1: DrawRow has to draw it
};

/// Memory between the kernels: `rows` rows of `parts` parts each.
struct SampleParts {
  Best* best;       // [rows, parts * kPartWarps]
  double* sums;     // [rows, parts], of e
  int32_t* counts;  // [rows, parts], ids collected
  RowFacts* facts;  // [rows]
  int32_t parts;
  int64_t first_row;  // row 0 here is this row of the arguments
};

/// One row as a kernel sees it.
struct SampleRow {
  SamplingRow params;
  const float* logits;
  int64_t row;    // of the arguments
  int32_t count;  // ids 0 ... count - 1 may be drawn
  bool greedy;
  bool limited;  // by top_k
};

/// Row `index` of the launch; false if it is not live.
__device__ inline bool FindSampleRow(const SampleArgs& args, int64_t row,
                                     SampleRow& found) {
  const int32_t live = *args.rows.live;
  found.row = row;
  found.logits = args.logits + row * args.vocab;
  found.params = args.params[row];
  const int64_t bound = found.params.id_bound;
  found.count = static_cast<int32_t>(bound < 0            ? 0
                                     : bound < args.vocab ? bound
                                                          : args.vocab);
  found.greedy = !(found.params.temperature > 0.0f);
  found.limited = found.params.top_k > 0 && found.params.top_k < found.count;
  return row < live;
}

/// Larger for a larger logit; equal for the two zeros.
__device__ inline uint32_t KeyOf(float logit) {
  const uint32_t bits = __float_as_uint(__fadd_rn(logit, 0.0f));
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float LogitOf(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

/// Proportional to the probability; 1 for the most likely.
__device__ inline float WeightOf(float logit, float greatest,
                                 float temperature) {
  return Exp(__fdiv_rn(__fadd_rn(logit, -greatest), temperature));
}

/// Ids first ... first + 3 of a row; `vectors`: the address allows it.
__device__ inline float4 LoadLogits(const float* logits, int32_t first,
                                    int32_t count, bool vectors) {
  if (vectors && first + 4 <= count) {
    return *reinterpret_cast<const float4*>(logits + first);
  }
  const auto at = [&](int i) {
    return first + i < count ? logits[first + i] : 0.0f;
  };
  return {at(0), at(1), at(2), at(3)};
}

/// The sum over a block's threads, to all of them: a tree over the lanes of
/// each warp, then the warps in order. `sums`: a value for each warp. Begins
/// with a block barrier.
template <int kWarps>
__device__ inline double BlockSum(double x, double* sums) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    x = __dadd_rn(x, __shfl_xor_sync(~0u, x, distance));
  }
  __syncthreads();
  if (threadIdx.x % kWarpSize == 0) sums[threadIdx.x / kWarpSize] = x;
  __syncthreads();
  double sum = sums[0];
  for (int w = 1; w < kWarps; ++w) sum = __dadd_rn(sum, sums[w]);
  return sum;
}

/// sample_draw.cu: the last of the three launches, for `rows` rows.
Status LaunchDraw(Stream stream, const SampleArgs& args,
                  const SampleParts& parts, int64_t rows, bool vectors);

}  // namespace signet::backend::gpu
