#pragma once
// The dot product of the plain cores: f32 inputs, weights as stored, f32 sums.
// Its order is one for every kernel here, so that a row of input and a row of
// weights give the same bits fused or not, in any batch, on the vector and the
// portable path. A row belongs to a team of kWarps warps (DotWarps in
// float_config.h, by the row's length alone): octet q to thread
// q mod (32 kWarps), which adds its octets in ascending order in one chain of
// fused multiply-adds from +0; then SumLanes, then SumWarps. Zeros past the end
// change no sum. Device code only.

#include <cuda_bf16.h>

#include <cstdint>

#include "backend/gpu/reduce.cuh"
#include "backend/gpu/stored.cuh"

namespace signet::backend::gpu {

/// Sixteen bytes of weights, which are read once a launch: they leave the
/// first-level cache to the inputs. Volatile, so that loads stay where they are
/// written: before DependencyWait, and ahead of the arithmetic.
__device__ __forceinline__ uint4 LoadWeights(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(__cvta_generic_to_global(from)));
  return v;
}

/// Sixteen bytes to shared memory, there after WaitForCopies.
__device__ __forceinline__ void CopyToShared(const void* from, void* to) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(__cvta_generic_to_global(from))
               : "memory");
}
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/// Asks for `bytes` of weights to be brought to the second-level cache. One
/// thread calls it.
__device__ __forceinline__ void PrefetchWeights(const void* from,
                                                int64_t bytes) {
  const auto begin = (reinterpret_cast<uintptr_t>(from) + 15) & ~uintptr_t{15};
  const auto end =
      (reinterpret_cast<uintptr_t>(from) + static_cast<uintptr_t>(bytes)) &
      ~uintptr_t{15};
  if (end <= begin) return;
  asm volatile(
      "cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
          __cvta_generic_to_global(reinterpret_cast<const void*>(begin))),
      "r"(static_cast<uint32_t>(end - begin)));
}

/// The rows that a team takes at a time: those from `row` on of a matrix, or of
/// a pair of matrices.
struct RowGroup {
  int part = 0;  // the matrix
  int row = 0;
};

/// Where they lie: the first half of them from `low` on, the second from `high`
/// on. Unless the group is full, rows past the last valid one of a half repeat
/// it.
struct GroupRows {
  const char* low = nullptr;
  const char* high = nullptr;
  bool full = true;
  int low_last = 0;
  int high_last = 0;
};

/// The group at the end of a matrix, or of each matrix of a pair: `left` of its
/// rows are there.
template <int kRows>
__device__ __forceinline__ void CutGroup(GroupRows& rows, bool pair, int left) {
  constexpr int kHalf = kRows / 2;
  rows.full = left >= (pair ? kHalf : kRows);
  if (rows.full) return;
  rows.low_last = min(left, kHalf) - 1;
  rows.high_last = pair ? rows.low_last : left - kHalf - 1;
  if (rows.high_last < 0) {  // no such rows: the first again
    rows.high = rows.low;
    rows.high_last = 0;
  }
}

/// Rows of bf16 in whole octets, each at a multiple of 16 bytes.
struct VectorWeights {
  using Loaded = uint4;
  static constexpr bool kVectors = true;
  int64_t row_bytes = 0;
  int octets = 0;

  template <bool kFull, int kRows>
  __device__ __forceinline__ Loaded Load(const GroupRows& group, int r,
                                         int q) const {
    constexpr int kHalf = kRows / 2;
    const bool low = r < kHalf;
    const int at = low ? (kFull ? r : min(r, group.low_last))
                       : (kFull ? r - kHalf : min(r - kHalf, group.high_last));
    return LoadWeights((low ? group.low : group.high) + at * row_bytes +
                       static_cast<int64_t>(q) * 16);
  }
  template <int kHalf>
  __device__ __forceinline__ static float4 Half(const Loaded& v) {
    const uint32_t a = kHalf == 0 ? v.x : v.z;
    const uint32_t b = kHalf == 0 ? v.y : v.w;
    return make_float4(
        __uint_as_float(a << 16), __uint_as_float(a & 0xffff0000u),
        __uint_as_float(b << 16), __uint_as_float(b & 0xffff0000u));
  }
};

/// Rows of any dtype, length and alignment.
struct StoredWeights {
  struct Loaded {
    float v[8];
  };
  static constexpr bool kVectors = false;
  tensor::DType low_dtype = tensor::DType::kBF16;
  tensor::DType high_dtype = tensor::DType::kBF16;
  int64_t cols = 0;
  int octets = 0;

  template <bool, int kRows>
  __device__ __forceinline__ Loaded Load(const GroupRows& group, int r,
                                         int q) const {
    constexpr int kHalf = kRows / 2;
    const bool low = r < kHalf;
    const int64_t row =
        low ? min(r, group.low_last) : min(r - kHalf, group.high_last);
    Loaded loaded;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int64_t k = static_cast<int64_t>(q) * 8 + i;
      loaded.v[i] =
          k < cols ? LoadStored(low ? group.low : group.high,
                                low ? low_dtype : high_dtype, row * cols + k)
                   : 0.0f;
    }
    return loaded;
  }
  template <int kHalf>
  __device__ __forceinline__ static float4 Half(const Loaded& v) {
    return make_float4(v.v[4 * kHalf], v.v[4 * kHalf + 1], v.v[4 * kHalf + 2],
                       v.v[4 * kHalf + 3]);
  }
};

/// Input rows in shared memory: per row two planes, of the low and the high
/// halves of its octets, so that neighbouring threads read neighbouring words.
struct SharedInput {
  const float4* planes = nullptr;
  int octets = 0;

  template <int kHalf>
  __device__ __forceinline__ float4 Get(const RowGroup&, int b, int q) const {
    return planes[(2 * b + kHalf) * octets + q];
  }
};

/// Half an octet of an input row in device memory: 16 bytes where kVectors
/// (rows in whole octets at multiples of 16 bytes), else zeros past `cols`.
template <bool kVectors>
__device__ __forceinline__ float4 LoadHalf(const float* row, int64_t cols,
                                           int64_t k) {
  const float* from = row + k;
  if constexpr (kVectors) {
    return __ldca(reinterpret_cast<const float4*>(from));
  }
  return make_float4(k < cols ? from[0] : 0.0f, k + 1 < cols ? from[1] : 0.0f,
                     k + 2 < cols ? from[2] : 0.0f,
                     k + 3 < cols ? from[3] : 0.0f);
}

/// Input rows in device memory, `cols` apart; rows from `count` on are zeros.
template <bool kVectors>
struct StreamedInput {
  const float* rows = nullptr;
  int64_t cols = 0;
  int count = 1;

  template <int kHalf>
  __device__ __forceinline__ float4 Get(const RowGroup&, int b, int q) const {
    if (b >= count) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return LoadHalf<kVectors>(rows + b * cols, cols,
                              static_cast<int64_t>(q) * 8 + 4 * kHalf);
  }
};

/// The form of a kernel's inner loop: kRows weight rows meet kBatch input rows,
/// kChunks octets of a row in flight a thread; kOneStep: those are the whole
/// row. Only kWarps changes bits.
template <int kTeam, int kGroupRows, int kInFlight, int kInputs,
          bool kWholeRows = false>
struct DotShape {
  static constexpr int kWarps = kTeam;
  static constexpr int kRows = kGroupRows;
  static constexpr int kChunks = kInFlight;
  static constexpr int kBatch = kInputs;
  static constexpr bool kOneStep = kWholeRows;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kValues = kRows * kBatch;
  static constexpr int kLanesPerValue = kWarpSize / kValues;
  // Teams of 256 threads that a block may have: one input row leaves room for
  // the inputs of several blocks.
  static constexpr int kMaxTeams = kBatch == 1 ? 1 : 2;
  // Two sets, so that one barrier a group is enough.
  static constexpr int kPartials = kWarps == 1 ? 0 : 2 * kWarps * kValues;
  static_assert(kRows % 2 == 0 && kValues <= kWarpSize);
  static_assert(kWarps == 1 || kWarps == kTeamWarps);
};

template <typename Shape, typename Weights>
struct DotTile {
  typename Weights::Loaded octets[Shape::kRows][Shape::kChunks];
};

template <int kHalf, typename Shape, typename Weights, typename Input>
__device__ __forceinline__ void MultiplyHalf(
    const typename Weights::Loaded (&octets)[Shape::kRows], const Input& input,
    const RowGroup& group, int q, float (&sums)[Shape::kValues]) {
  float4 x[Shape::kBatch];
#pragma unroll
  for (int b = 0; b < Shape::kBatch; ++b) {
    x[b] = input.template Get<kHalf>(group, b, q);
  }
#pragma unroll
  for (int r = 0; r < Shape::kRows; ++r) {
    const float4 w = Weights::template Half<kHalf>(octets[r]);
#pragma unroll
    for (int b = 0; b < Shape::kBatch; ++b) {
      float& sum = sums[b * Shape::kRows + r];
      sum = __fmaf_rn(w.x, x[b].x, sum);
      sum = __fmaf_rn(w.y, x[b].y, sum);
      sum = __fmaf_rn(w.z, x[b].z, sum);
      sum = __fmaf_rn(w.w, x[b].w, sum);
    }
  }
}

template <int kId>
__device__ __forceinline__ void BarrierOf() {
  asm volatile("bar.sync %0, %1;" ::"n"(kId), "n"(kTeamThreads) : "memory");
}

/// All warps of a team meet; the teams of a block (two at most) are apart.
template <int kTeams>
__device__ __forceinline__ void TeamBarrier() {
  if (kTeams == 1 || threadIdx.x < kTeamThreads) {
    BarrierOf<1>();
  } else {
    BarrierOf<2>();
  }
}

/// The loads of chunk j of a step, octet `q` of this thread.
template <typename Shape, typename Weights, typename Source>
__device__ __forceinline__ void LoadChunk(const Weights& weights,
                                          const Source& source,
                                          const RowGroup& group, int j, int q,
                                          DotTile<Shape, Weights>& tile) {
  const GroupRows rows = source.Rows(group);
  if (rows.full) {
#pragma unroll
    for (int r = 0; r < Shape::kRows; ++r) {
      tile.octets[r][j] = weights.template Load<true, Shape::kRows>(rows, r, q);
    }
  } else {
#pragma unroll
    for (int r = 0; r < Shape::kRows; ++r) {
      tile.octets[r][j] =
          weights.template Load<false, Shape::kRows>(rows, r, q);
    }
  }
}

/// The first loads of a group; they may be issued before DependencyWait.
template <typename Shape, typename Weights, typename Source>
__device__ __forceinline__ void LoadFirst(const Weights& weights,
                                          const Source& source,
                                          const RowGroup& group,
                                          DotTile<Shape, Weights>& tile) {
  const int thread = ThreadOf<Shape::kThreads>();
#pragma unroll
  for (int j = 0; j < Shape::kChunks; ++j) {
    const int q = j * Shape::kThreads + thread;
    if (q < weights.octets) LoadChunk(weights, source, group, j, q, tile);
  }
}

/// One step: every octet in `tile` is multiplied, then its place filled from
/// `q_ahead` on of `next`, if there is an `ahead`.
template <typename Shape, typename Weights, typename Input, typename Source>
__device__ __forceinline__ void MultiplyStep(
    const Weights& weights, const Input& input, const Source& source,
    const RowGroup& group, int q, bool ahead, const RowGroup& next, int q_ahead,
    DotTile<Shape, Weights>& tile, float (&sums)[Shape::kValues]) {
#pragma unroll
  for (int j = 0; j < Shape::kChunks; ++j) {
    const int at = q + j * Shape::kThreads;
    if (at < weights.octets) {
      typename Weights::Loaded octets[Shape::kRows];
#pragma unroll
      for (int r = 0; r < Shape::kRows; ++r) octets[r] = tile.octets[r][j];
      MultiplyHalf<0, Shape, Weights>(octets, input, group, at, sums);
      MultiplyHalf<1, Shape, Weights>(octets, input, group, at, sums);
    }
    const int at_ahead = q_ahead + j * Shape::kThreads;
    if (ahead && at_ahead < weights.octets) {
      LoadChunk(weights, source, next, j, at_ahead, tile);
    }
  }
}

/// Multiplies group after group of `source`, the first of which is `group`,
/// with its first loads in `tile`. source.Next(group&) gives the next or false,
/// source.Rows(group) says where its rows lie.
/// finish.Begin(group, b, r) runs early in one thread for each value (weight
/// row r of the group, input row b), and what it returns is handed to
/// finish.End(group, b, r, value, partner, begun); partner is the value of row
/// r + kRows / 2. Loads run ahead by one step. `partials`: shared memory of
/// kPartials floats of this team.
template <typename Shape, typename Weights, typename Input, typename Source,
          typename Finish>
__device__ __forceinline__ void MultiplyGroups(
    const Weights& weights, const Input& input, Source& source,
    const Finish& finish, RowGroup group, DotTile<Shape, Weights>& tile,
    float* partials) {
  constexpr int kStride = Shape::kChunks * Shape::kThreads;
  const int thread = ThreadOf<Shape::kThreads>();
  const int lane = LaneOfThread();
  const auto warp = static_cast<unsigned>(thread) / kWarpSize;
  const auto value = static_cast<unsigned>(lane) / Shape::kLanesPerValue;
  const bool finishes = lane % Shape::kLanesPerValue == 0;
  const int b = static_cast<int>(value / Shape::kRows);
  const int r = static_cast<int>(value % Shape::kRows);

  unsigned turn = 0;
  bool more = true;
  while (more) {
    // The warp that ends the group: every one in turn.
    const bool mine = finishes && warp == turn % Shape::kWarps;
    const float begun = mine ? finish.Begin(group, b, r) : 0.0f;
    float sums[Shape::kValues];
#pragma unroll
    for (int i = 0; i < Shape::kValues; ++i) sums[i] = 0.0f;
    if constexpr (!Shape::kOneStep) {
      for (int q = 0; q + kStride < weights.octets; q += kStride) {
        MultiplyStep<Shape>(weights, input, source, group, q + thread, true,
                            group, q + kStride + thread, tile, sums);
      }
    }
    const int last =
        Shape::kOneStep ? 0 : (weights.octets - 1) / kStride * kStride;
    RowGroup next = group;
    more = source.Next(next);
    MultiplyStep<Shape>(weights, input, source, group, last + thread, more,
                        next, thread, tile, sums);

    float total = SumLanes(sums, lane);
    if constexpr (Shape::kWarps > 1) {
      float* set = partials + turn % 2 * Shape::kWarps * Shape::kValues;
      if (finishes) set[warp * Shape::kValues + value] = total;
      TeamBarrier<Shape::kMaxTeams>();
      if (warp == turn % Shape::kWarps) {
        total = SumWarps(set + value, Shape::kValues);
      }
    }
    const float partner = __shfl_down_sync(
        kAllLanes, total, Shape::kRows / 2 * Shape::kLanesPerValue);
    if (mine) finish.End(group, b, r, total, partner, begun);
    group = next;
    ++turn;
  }
}

}  // namespace signet::backend::gpu
