// Attention of any shape in fp32 on the plain cores: a block takes a split of a
// row for the query heads of a tile, 32 positions at a time. Scores: a warp
// takes 4 keys at once, lanes over dimensions. Sums: threads over dimensions.

#include <cuda_bf16.h>

#include "backend/gpu/attention_split.cuh"
#include "backend/gpu/kv_rows.cuh"
#include "backend/gpu/stored.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kKeys = kWarpSize;  // of a block at a time: softmax by lane
constexpr int kKeysAtOnce = 4;    // of a warp
constexpr int kHeadsOfWarp = kTileHeads / kWarps;
constexpr int kDimsOfThread = kMaxAttentionDim / kThreads;
constexpr unsigned kAllLanes = 0xffffffff;
static_assert(kKeysAtOnce * kTileHeads == kWarpSize);

struct PlainShared {
  float query[kTileHeads][kMaxAttentionDim];
  float score[kTileHeads][kKeys];
  float weight[kKeys][kTileHeads];
  float factor[kTileHeads];
  float total[kTileHeads];
  int64_t offset[kKeys];
};

// Sums each of kValues values over the kValues lanes of a group;
// lane i of it returns the sum of value i.
template <int kValues>
__device__ __forceinline__ float SumToLanes(const float (&values)[kValues],
                                            int lane) {
  if constexpr (kValues == 1) {
    return values[0];
  } else {
    constexpr int kHalf = kValues / 2;
    const bool upper = (lane & kHalf) != 0;
    float sums[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float kept = upper ? values[i + kHalf] : values[i];
      const float given = upper ? values[i] : values[i + kHalf];
      sums[i] = __fadd_rn(kept, __shfl_xor_sync(kAllLanes, given, kHalf));
    }
    return SumToLanes(sums, lane);
  }
}

// Scores of keys [first, first + kKeysAtOnce) of the tile; those past `count`
// read the last one and are not used.
template <typename T>
__device__ void Score(const T* keys, int dim, int first, int count, int lane,
                      float scale, PlainShared& shared) {
  float dots[kWarpSize] = {};  // [key][head]
  const T* key[kKeysAtOnce];
#pragma unroll
  for (int k = 0; k < kKeysAtOnce; ++k) {
    key[k] = keys + shared.offset[min(first + k, count - 1)];
  }
  for (int e = lane; e < dim; e += kWarpSize) {
    float x[kKeysAtOnce];
#pragma unroll
    for (int k = 0; k < kKeysAtOnce; ++k) x[k] = ToFloat(key[k][e]);
#pragma unroll
    for (int h = 0; h < kTileHeads; ++h) {
      const float q = shared.query[h][e];
#pragma unroll
      for (int k = 0; k < kKeysAtOnce; ++k) {
        float& dot = dots[k * kTileHeads + h];
        dot = __fmaf_rn(q, x[k], dot);
      }
    }
  }
  const float dot = SumToLanes(dots, lane);
  const int k = first + lane / kTileHeads;
  shared.score[lane % kTileHeads][k] =
      k < count ? __fmul_rn(dot, scale) : -INFINITY;
}

// The running maximum and total of a head, in every lane of its warp.
struct HeadTotals {
  float max = -INFINITY;
  float total = 0.0f;
};

__device__ void Weigh(int head, int lane, HeadTotals& totals,
                      PlainShared& shared) {
  const float score = shared.score[head][lane];
  float most = score;
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, distance));
  }
  most = fmaxf(most, totals.max);
  const float weight = Exp(__fsub_rn(score, most));
  float added = weight;
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    added = __fadd_rn(added, __shfl_xor_sync(kAllLanes, added, distance));
  }
  const float factor = Exp(__fsub_rn(totals.max, most));
  totals = {most, __fmaf_rn(totals.total, factor, added)};
  shared.weight[lane][head] = weight;
  if (lane == 0) shared.factor[head] = factor;
}

template <typename T>
__device__ void AddValues(const T* values, int dim, int count,
                          const PlainShared& shared,
                          float (&sums)[kDimsOfThread][kTileHeads]) {
#pragma unroll
  for (int i = 0; i < kDimsOfThread; ++i) {
    const int e = static_cast<int>(threadIdx.x) + i * kThreads;
    if (e >= dim) continue;
#pragma unroll
    for (int h = 0; h < kTileHeads; ++h) {
      sums[i][h] = __fmul_rn(sums[i][h], shared.factor[h]);
    }
#pragma unroll 8
    for (int k = 0; k < count; ++k) {
      const float x = ToFloat(values[shared.offset[k] + e]);
#pragma unroll
      for (int h = 0; h < kTileHeads; ++h) {
        sums[i][h] = __fmaf_rn(shared.weight[k][h], x, sums[i][h]);
      }
    }
  }
}

// Writes the heads, or the sums of the split.
__device__ void Finish(const SplitAttention& attention, const SplitPiece& piece,
                       const PlainShared& shared,
                       const float (&sums)[kDimsOfThread][kTileHeads]) {
  const AttentionArgs& args = attention.ops.attention;
  const int dim = static_cast<int>(args.cache.head_dim);
  const bool whole = piece.splits.count == 1;
#pragma unroll
  for (int i = 0; i < kDimsOfThread; ++i) {
    const int e = static_cast<int>(threadIdx.x) + i * kThreads;
    if (e >= dim) continue;
#pragma unroll
    for (int h = 0; h < kTileHeads; ++h) {
      if (h >= piece.num_heads) continue;
      const int64_t head = piece.first_head + h;
      if (whole) {
        args.out[(piece.row * args.heads + head) * dim + e] =
            Gated(sums[i][h], __fdiv_rn(1.0f, shared.total[h]),
                  GateOf(args, piece.row, head)[e]);
      } else {
        const int64_t index = SumIndex(attention, piece.row, head, piece.split);
        SumsIn(attention).values[index * dim + e] = sums[i][h];
      }
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    PlainKernel(const SplitAttention attention) {
  __shared__ PlainShared shared;
  DependencyWait();
  SplitPiece piece;
  if (!FindPiece(attention, piece)) return;
  const AttentionArgs& args = attention.ops.attention;
  const int dim = static_cast<int>(args.cache.head_dim);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpSize;
  const int warp = thread / kWarpSize;
  const auto* keys = static_cast<const T*>(args.cache.k);
  const auto* values = static_cast<const T*>(args.cache.v);

  for (int h = 0; h < kTileHeads; ++h) {
    const float* q =
        args.q + (piece.row * args.heads + piece.first_head + h) * dim;
    for (int e = thread; e < dim; e += kThreads) {
      shared.query[h][e] = h < piece.num_heads ? q[e] : 0.0f;
    }
  }
  HeadTotals totals[kHeadsOfWarp];
  float sums[kDimsOfThread][kTileHeads] = {};
  for (int base = piece.begin; base < piece.end; base += kKeys) {
    const int count = min(kKeys, piece.end - base);
    if (thread < count) {
      shared.offset[thread] =
          KvOffset(args.cache, piece.slot, base + thread, piece.kv_head);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kKeys / (kWarps * kKeysAtOnce); ++i) {
      const int first = (i * kWarps + warp) * kKeysAtOnce;
      Score(keys, dim, first, count, lane, args.scale, shared);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kHeadsOfWarp; ++i) {
      Weigh(warp * kHeadsOfWarp + i, lane, totals[i], shared);
    }
    __syncthreads();
    AddValues(values, dim, count, shared, sums);
    __syncthreads();
  }
  if (lane == 0) {
    for (int i = 0; i < kHeadsOfWarp; ++i) {
      const int h = warp * kHeadsOfWarp + i;
      shared.total[h] = totals[i].total;
      if (piece.splits.count == 1 || h >= piece.num_heads) continue;
      const int64_t index =
          SumIndex(attention, piece.row, piece.first_head + h, piece.split);
      SumsIn(attention).totals[index] =
          make_float2(totals[i].max, totals[i].total);
    }
  }
  __syncthreads();
  Finish(attention, piece, shared, sums);
}

}  // namespace

Status LaunchPlain(Stream stream, const SplitAttention& attention) {
  const bool bf16 = attention.ops.attention.cache.dtype == tensor::DType::kBF16;
  return Launch(bf16 ? PlainKernel<__nv_bfloat16> : PlainKernel<float>,
                SplitGrid(attention), dim3(kThreads), 0, stream, attention);
}

}  // namespace signet::backend::gpu
