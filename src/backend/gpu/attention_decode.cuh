#pragma once
// Attention of few rows over a bf16 cache, in fp32, bound by reading the cache
// in long rows and by the steps that wait for each other in short ones: every
// key and value is read once, for the 8 query heads of a tile. A warp takes 8
// positions at a time and copies them to its own part of shared memory; a lane
// uses what it copied itself.
//
// The plain cores could not keep up with the memory (8 multiply-adds a byte),
// so products run on the tensor cores, exactly: an f32 operand is a sum of
// three bf16 parts, products of bf16 are exact in f32, and sums of 16 products
// are added in f32. Scores are [heads, keys] = q k^T with the high and middle
// parts of q as rows 0 ... 7 and 8 ... 15; sums are [dims, heads] = v^T p^T.
// Which dimension or key a tensor-core index means is free as long as both
// operands agree; it is chosen so that a lane reads 16 bytes at a time.
//
// Fused (kFused), a block first makes its rotated queries itself, and the block
// that holds the row's own position also makes and appends its key and value;
// it takes them from shared memory, and no other block reads them.

#include <cuda_bf16.h>

#include <cstdint>

#include "backend/gpu/attention_decode_queries.cuh"
#include "backend/gpu/attention_split.cuh"
#include "backend/gpu/sm80_attention_decode_mma.cuh"
#include "backend/gpu/sm80_attention_mma.cuh"

namespace signet::backend::gpu {

/// Lane (g, t) of a warp holds of 8 positions:
///   key g: dims 32 c + 8 t ... + 7, in key[c];
///   values 2t, 2t + 1: dims 64 c + 8 g ... + 7, in value[.][c].
/// These start to copy those below `end`, and zeros for the others: what lies
/// there may be anything. `offset` is that of position `base`.
template <int kDim>
__device__ inline void LoadKeys(const KvView& cache, int64_t offset, int base,
                                int end, int lane, DecodeTile<kDim>& tile) {
  const int key = lane / 4;
  const __nv_bfloat16* from = static_cast<const __nv_bfloat16*>(cache.k) +
                              offset + key * cache.num_kv_heads * kDim +
                              lane % 4 * 8;
#pragma unroll
  for (int c = 0; c < kDim / 32; ++c) {
    CopyAsync(&tile.cached.key[c][lane], from + c * 32, base + key < end);
  }
}
template <int kDim>
__device__ inline void LoadValues(const KvView& cache, int64_t offset, int base,
                                  int end, int lane, DecodeTile<kDim>& tile) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int key = lane % 4 * 2 + i;
    const __nv_bfloat16* from = static_cast<const __nv_bfloat16*>(cache.v) +
                                offset + key * cache.num_kv_heads * kDim +
                                lane / 4 * 8;
#pragma unroll
    for (int c = 0; c < kDim / 64; ++c) {
      CopyAsync(&tile.cached.value[i][c][lane], from + c * 64,
                base + key < end);
    }
  }
}

/// Put the new token, `at` of the tile's positions, where it belongs.
template <int kDim>
__device__ inline void InsertKey(const uint4* new_key, int at, int lane,
                                 DecodeTile<kDim>& tile) {
  if (lane / 4 != at) return;
#pragma unroll
  for (int c = 0; c < kDim / 32; ++c) {
    tile.cached.key[c][lane] = new_key[c * 4 + lane % 4];
  }
}
template <int kDim>
__device__ inline void InsertValue(const uint4* new_value, int at, int lane,
                                   DecodeTile<kDim>& tile) {
  if (lane % 4 != at / 2) return;
#pragma unroll
  for (int c = 0; c < kDim / 64; ++c) {
    tile.cached.value[at % 2][c][lane] = new_value[c * 8 + lane / 4];
  }
}

/// The scores of 8 keys, 32 dimensions at a time: lane (g, t) has head g, keys
/// 2t, 2t + 1. High and middle parts are added in f32 as they come, low ones in
/// the tensor cores.
struct ScoreSums {
  float high[2] = {};
  float middle[2] = {};
  // One operand has the low parts of both steps, the second as rows 8 ... 15.
  // Each step uses its own half of the result.
  float low[2][4] = {};

  __device__ void Add(const uint4& first, const uint4& second,
                      const uint4& low_parts, const uint4& key) {
    AddStep(first, key.x, key.y);
    AddStep(second, key.z, key.w);
    MultiplyAdd(low[0], low_parts.x, low_parts.y, low_parts.z, low_parts.w,
                key.x, key.y);
    MultiplyAdd(low[1], low_parts.x, low_parts.y, low_parts.z, low_parts.w,
                key.z, key.w);
  }
  __device__ float Total(int i) const {
    return __fadd_rn(high[i],
                     __fadd_rn(__fadd_rn(low[0][i], low[1][2 + i]), middle[i]));
  }

 private:
  __device__ void AddStep(const uint4& parts, uint32_t key0, uint32_t key1) {
    float d[4] = {};
    MultiplyAdd(d, parts.x, parts.y, parts.z, parts.w, key0, key1);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      high[i] = __fadd_rn(high[i], d[i]);
      middle[i] = __fadd_rn(middle[i], d[2 + i]);
    }
  }
};

/// The scores of a tile's 8 keys: keys 2t, 2t + 1 of head g.
template <int kDim>
__device__ inline void Score(const DecodeShared<kDim>& shared,
                             const DecodeTile<kDim>& tile, float scale,
                             int base, int end, int lane, float (&scores)[2]) {
  const DecodeQuery<kDim>& query = shared.query[lane / 4];
  const int t = lane % 4;
  ScoreSums sums;
#pragma unroll
  for (int c = 0; c < kDim / 32; ++c) {
    sums.Add(query.parts[c][0][t], query.parts[c][1][t], query.parts[c][2][t],
             tile.cached.key[c][lane]);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    scores[i] =
        base + 2 * t + i < end ? __fmul_rn(sums.Total(i), scale) : -INFINITY;
  }
}

/// The running softmax of a warp over its positions. Head g's maximum is in
/// lanes (g, .), each of which has a part of its total; sum[c][j] is rows g, g
/// + 8 (dims 64 c + 8 g + 2j, + 1) by heads 2t, 2t + 1.
template <int kDim>
struct WarpSums {
  float max = -INFINITY;
  float total = 0.0f;
  float sum[kDim / 64][4][4] = {};

  /// scores -> weights under the new maximum; returns the factor that brings
  /// what was summed before under it.
  __device__ float Weigh(float (&scores)[2]) {
    float most = fmaxf(scores[0], scores[1]);
    most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 2));
    most = fmaxf(most, max);
    const float factor = Exp(__fsub_rn(max, most));
    max = most;
    scores[0] = Exp(__fsub_rn(scores[0], most));
    scores[1] = Exp(__fsub_rn(scores[1], most));
    total = __fmaf_rn(total, factor, __fadd_rn(scores[0], scores[1]));
    return factor;
  }

  __device__ void AddValues(const DecodeTile<kDim>& tile,
                            const float (&weights)[2], float factor, int lane) {
    const BF16Parts p = SplitBF16(weights[0], weights[1]);
    const float factor0 = __shfl_sync(0xffffffff, factor, lane % 4 * 2 * 4);
    const float factor1 =
        __shfl_sync(0xffffffff, factor, (lane % 4 * 2 + 1) * 4);
#pragma unroll
    for (int c = 0; c < kDim / 64; ++c) {
      const uint4 first = tile.cached.value[0][c][lane];
      const uint4 second = tile.cached.value[1][c][lane];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t v0 = Word(first, j);
        const uint32_t v1 = Word(second, j);
        const uint32_t a0 = __byte_perm(v0, v1, 0x5410);
        const uint32_t a1 = __byte_perm(v0, v1, 0x7632);
        float d[4] = {};
        MultiplyAdd8(d, a0, a1, p.low);
        MultiplyAdd8(d, a0, a1, p.middle);
        MultiplyAdd8(d, a0, a1, p.high);
        float(&s)[4] = sum[c][j];
        s[0] = __fmaf_rn(s[0], factor0, d[0]);
        s[1] = __fmaf_rn(s[1], factor1, d[1]);
        s[2] = __fmaf_rn(s[2], factor0, d[2]);
        s[3] = __fmaf_rn(s[3], factor1, d[3]);
      }
    }
  }

  /// In place of the warp's tile.
  __device__ void Store(int warp, int lane, DecodeShared<kDim>& shared) {
    total = __fadd_rn(total, __shfl_xor_sync(0xffffffff, total, 1));
    total = __fadd_rn(total, __shfl_xor_sync(0xffffffff, total, 2));
    __syncwarp();
    const int g = lane / 4;
    const int t = lane % 4;
    if (t == 0) {
      shared.max[warp][g] = max;
      shared.total[warp][g] = total;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float* to = shared.tile[warp].sums[2 * t + i] + 8 * g;
#pragma unroll
      for (int c = 0; c < kDim / 64; ++c) {
        const float(&s)[4][4] = sum[c];
        *reinterpret_cast<float4*>(to + 64 * c) =
            make_float4(s[0][i], s[0][i + 2], s[1][i], s[1][i + 2]);
        *reinterpret_cast<float4*>(to + 64 * c + 4) =
            make_float4(s[2][i], s[2][i + 2], s[3][i], s[3][i + 2]);
      }
    }
  }

 private:
  __device__ static uint32_t Word(const uint4& x, int j) {
    return j == 0 ? x.x : j == 1 ? x.y : j == 2 ? x.z : x.w;
  }
};

/// Adds the warps in order and writes the head of the calling warp, or the sums
/// of the split.
template <int kDim>
__device__ inline void FinishHead(const SplitAttention& attention,
                                  const SplitPiece& piece,
                                  const DecodeShared<kDim>& shared, int in_tile,
                                  int lane) {
  if (in_tile >= piece.num_heads) return;
  const AttentionArgs& args = attention.ops.attention;
  const int64_t head = piece.first_head + in_tile;
  const bool whole = piece.splits.count == 1;

  // Lane w has warp w's, and lane w + 8 and so on again.
  const float mine = shared.max[lane % kDecodeWarps][in_tile];
  float max = mine;
#pragma unroll
  for (int distance = kDecodeWarps / 2; distance > 0; distance /= 2) {
    max = fmaxf(max, __shfl_xor_sync(0xffffffff, max, distance));
  }
  const float factor = Exp(__fsub_rn(mine, max));
  float weight[kDecodeWarps];
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < kDecodeWarps; ++w) {
    weight[w] = __shfl_sync(0xffffffff, factor, w);
    total = __fmaf_rn(shared.total[w][in_tile], weight[w], total);
  }
  float* out = args.out + (piece.row * args.heads + head) * kDim;
  float inverse = 0.0f;
  if (whole) {
    inverse = __fdiv_rn(1.0f, total);
  } else {
    const SplitSums sums = SumsIn(attention);
    const int64_t index = SumIndex(attention, piece.row, head, piece.split);
    if (lane == 0) sums.totals[index] = make_float2(max, total);
    out = sums.values + index * kDim;
  }
#pragma unroll
  for (int i = 0; i < kDim; i += 4 * kWarpSize) {
    const int e = i + 4 * lane;
    if (e >= kDim) continue;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int w = 0; w < kDecodeWarps; ++w) {
      const float4 x =
          *reinterpret_cast<const float4*>(shared.tile[w].sums[in_tile] + e);
      sum.x = __fmaf_rn(x.x, weight[w], sum.x);
      sum.y = __fmaf_rn(x.y, weight[w], sum.y);
      sum.z = __fmaf_rn(x.z, weight[w], sum.z);
      sum.w = __fmaf_rn(x.w, weight[w], sum.w);
    }
    if (whole) {
      const float4 gate =
          *reinterpret_cast<const float4*>(shared.gate[in_tile] + e);
      sum = make_float4(
          GatedBy(sum.x, inverse, gate.x), GatedBy(sum.y, inverse, gate.y),
          GatedBy(sum.z, inverse, gate.z), GatedBy(sum.w, inverse, gate.w));
    }
    *reinterpret_cast<float4*>(out + e) = sum;
  }
}

/// Launches of no more rows than this read a row's inputs before they know that
/// it is live and short: nothing much to read in vain.
inline constexpr unsigned kEarlyRows = 8;

template <int kDim, bool kFused>
__global__ void __launch_bounds__(kDecodeThreads, 2)
    DecodeKernel(const SplitAttention attention) {
  extern __shared__ uint4 dynamic_shared[];
  auto& shared = *reinterpret_cast<DecodeShared<kDim>*>(dynamic_shared);
  const AttentionArgs& args = attention.ops.attention;
  const KvView& cache = args.cache;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  constexpr int kStep = kDecodeWarps * kDecodeKeys;
  DecodeInputs<kDim, kFused> inputs = {attention, shared, lane, warp};
  DecodePages pages(cache);
  SplitPiece piece = PieceOf(attention);
  const bool early = piece.split == 0 && gridDim.z <= kEarlyRows;
  if (early) inputs.LoadWeights();
  DependencyWait();

  // Whatever can be under way is, before anything of it is used.
  const RowState state = StateOf(args.rows, piece.row);
  if (!early) {
    if (!MayHavePositions(attention.config.rule, state, piece)) return;
    inputs.LoadWeights();
  }
  inputs.Start(piece);
  if (!FindPositions(attention.config.rule, state, piece)) {
    WaitForCopies<0>();
    return;
  }
  pages.table += piece.slot * cache.pages_per_slot;
  int base = piece.begin + warp * kDecodeKeys;
  int32_t page = base < piece.end ? pages.Load(base) : 0;
  const bool holds_new = inputs.HoldsNew(piece);
  const int32_t new_page = holds_new ? pages.Load(piece.position) : 0;
  inputs.Norm(piece);
  const int readable = kFused ? min(piece.end, piece.position) : piece.end;
  DecodeTile<kDim>& tile = shared.tile[warp];
  int64_t offset = pages.Offset(cache, page, base, piece.kv_head);
  if (base < piece.end) LoadKeys(cache, offset, base, readable, lane, tile);
  CommitCopies();
  if (base < piece.end) LoadValues(cache, offset, base, readable, lane, tile);
  CommitCopies();
  if (kFused) inputs.MakeRotation(piece);
  inputs.MakeGates(piece);
  if (kFused) {
    __syncthreads();
    inputs.Rotate();
    inputs.Append(piece, pages, new_page);
  }
  inputs.PartQuery();
  __syncthreads();

  WarpSums<kDim> sums;
  while (base < piece.end) {
    const int next = base + kStep;
    const bool more = next < piece.end;
    if (more) page = pages.Load(next);
    const int at = holds_new ? piece.position - base : kDecodeKeys;
    WaitForCopies<1>();
    if (at < kDecodeKeys) InsertKey(shared.new_key, at, lane, tile);
    float scores[2];
    Score(shared, tile, args.scale, base, piece.end, lane, scores);
    offset = pages.Offset(cache, page, next, piece.kv_head);
    if (more) LoadKeys(cache, offset, next, readable, lane, tile);
    CommitCopies();
    const float factor = sums.Weigh(scores);
    WaitForCopies<1>();
    if (at < kDecodeKeys) InsertValue(shared.new_value, at, lane, tile);
    sums.AddValues(tile, scores, factor, lane);
    if (more) LoadValues(cache, offset, next, readable, lane, tile);
    CommitCopies();
    base = next;
  }
  sums.Store(warp, lane, shared);
  __syncthreads();
  FinishHead(attention, piece, shared, warp, lane);
}

template <int kDim, bool kFused>
Status LaunchDecodeDim(Stream stream, const SplitAttention& attention) {
  constexpr auto kBytes = static_cast<int>(sizeof(DecodeShared<kDim>));
  const auto kernel = DecodeKernel<kDim, kFused>;
  const Status status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (status != kOk) return status;
  return LaunchRows(attention.ops.attention.rows.capacity, kernel,
                    SplitGrid(attention), dim3(kDecodeThreads), kBytes, stream,
                    attention);
}

template <bool kFused>
Status LaunchDecodeAs(Stream stream, const SplitAttention& attention) {
  switch (attention.ops.attention.cache.head_dim) {
    case 64:
      return LaunchDecodeDim<64, kFused>(stream, attention);
    case 128:
      return LaunchDecodeDim<128, kFused>(stream, attention);
    default:
      return LaunchDecodeDim<256, kFused>(stream, attention);
  }
}

}  // namespace signet::backend::gpu
