// The part of the chunked delta rule that does not need the state, all chunks
// and heads at once: keys and queries normalised and split, the decays, and the
// two triangles of a chunk (ChunkHead), the first one inverted. The inverse is
// made in f32: its elements are what one token's value does to another's delta,
// at most 1, so that nothing grows.

#include "backend/gpu/sm80_delta_chunk.cuh"
#include "backend/gpu/sm80_delta_decays.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
// Value heads whose triangles are made at once, by as many threads each: what
// takes long is to wait.
constexpr int kHeads = 2;
constexpr int kHeadThreads = kThreads / kHeads;
// A row of a triangle in shared memory, padded so that rows differ in banks.
constexpr int kPitch = kChunk + 4;
static_assert(kKeyDim == kWarpValues);
static_assert(kWarps == 2 * kTiles);

struct HeadTriangles {
  alignas(16) float l[kChunk][kPitch];        // L
  alignas(16) float inverse[kChunk][kPitch];  // (I + L)^-1
  alignas(16) float sums[kTile][kPitch];
};
struct Shared {
  // The keys are done with when the triangles are begun.
  union {
    ChunkKeys keys;
    HeadTriangles heads[kHeads];
  };
  HeadDecays decays[kHeads];
};
static_assert(2 * sizeof(Shared) <= 226 << 10);

__device__ inline float4 Load4(const float* x) {
  return *reinterpret_cast<const float4*>(x);
}
// sum + x . rows of four columns.
__device__ inline float4 MulAdd(float x, float4 row, float4 sum) {
  return {__fmaf_rn(x, row.x, sum.x), __fmaf_rn(x, row.y, sum.y),
          __fmaf_rn(x, row.z, sum.z), __fmaf_rn(x, row.w, sum.w)};
}
// Two sums + the products of a[0 ... kCount - 1] each and the same rows of
// kPitch floats.
template <int kCount>
__device__ inline void MulAddRows(const float* a0, const float* a1,
                                  const float* rows, float4& sum0,
                                  float4& sum1) {
#pragma unroll
  for (int j = 0; j < kCount; j += 4) {
    const float4 x0 = Load4(a0 + j);
    const float4 x1 = Load4(a1 + j);
    const float of0[4] = {x0.x, x0.y, x0.z, x0.w};
    const float of1[4] = {x1.x, x1.y, x1.z, x1.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 row = Load4(rows + (j + i) * kPitch);
      sum0 = MulAdd(of0[i], row, sum0);
      sum1 = MulAdd(of1[i], row, sum1);
    }
  }
}

// Elements 4 lane ... 4 lane + 3 of a token's vector, times `factor`.
__device__ inline void StoreVector(SplitMatrix<kChunk, kKeyUnits>& to,
                                   int token, int lane, float4 x,
                                   float factor) {
  const int pair = lane % 2 * 2;
  Store(to, token, lane / 2, pair,
        SplitOf(__fmul_rn(x.x, factor), __fmul_rn(x.y, factor)));
  Store(to, token, lane / 2, pair + 1,
        SplitOf(__fmul_rn(x.z, factor), __fmul_rn(x.w, factor)));
}

// The keys and queries of `count` tokens from row `first` on.
__device__ inline void NormaliseKeys(const DeltaRuleArgs& args,
                                     int64_t key_head, int64_t first, int count,
                                     int warp, int lane, ChunkKeys& keys) {
  constexpr int kEach = kChunk / kWarps;
  const int64_t width =
      2 * args.key_heads * kKeyDim + args.value_heads * args.value_dim;
  float4 q[kEach];
  float4 k[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int t = warp + i * kWarps;
    q[i] = k[i] = float4{0, 0, 0, 0};
    if (t >= count) continue;
    const float* qkv = args.qkv + (first + t) * width + 4 * lane;
    q[i] = Load4(qkv + key_head * kKeyDim);
    k[i] = Load4(qkv + (args.key_heads + key_head) * kKeyDim);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int t = warp + i * kWarps;
    const KeyFactors factors = FactorsOf(WarpSum(Dot4(q[i], q[i], 0.0f)),
                                         WarpSum(Dot4(k[i], k[i], 0.0f)), 0.0f,
                                         static_cast<float>(kKeyDim));
    StoreVector(keys.q, t, lane, q[i], __fmul_rn(factors.q, kKeyScale));
    StoreVector(keys.k, t, lane, k[i], __fmul_rn(factors.k, kKeyScale));
  }
}

// Row `tile` of the tiles of K K^T or Q K^T, up to the diagonal.
struct Products {
  float of[2 * kTiles][4];

  __device__ void Make(const ChunkKeys& keys, bool of_queries, int tile,
                       int lane) {
    const auto& rows = of_queries ? keys.q : keys.k;
    switch (tile) {
      case 0:
        return MakeTiles<1>(rows, keys.k, lane);
      case 1:
        return MakeTiles<2>(rows, keys.k, lane);
      case 2:
        return MakeTiles<3>(rows, keys.k, lane);
      default:
        return MakeTiles<4>(rows, keys.k, lane);
    }
  }
  // The first kCount tiles of row kCount - 1.
  template <int kCount>
  __device__ void MakeTiles(const SplitMatrix<kChunk, kKeyUnits>& rows,
                            const SplitMatrix<kChunk, kKeyUnits>& columns,
                            int lane) {
    static_assert(kCount <= kTiles);
    SplitSum<2 * kCount> sum;
#pragma unroll 1
    for (int k = 0; k < kKeyDim; k += kTile) {
      const SplitTile left = LeftTile(rows, kTile * (kCount - 1), k, lane);
#pragma unroll
      for (int t = 0; t < kCount; ++t) {
        sum.Add(2 * t, left, RightTile(columns, kTile * t, k, lane));
      }
    }
    constexpr float kUnscale = 1 / (kKeyScale * kKeyScale);
#pragma unroll
    for (int t = 0; t < 2 * kCount; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) of[t][e] = __fmul_rn(sum.Get(t, e), kUnscale);
    }
  }
  // Of row i of tile `tile` and column j, decayed from j to i; 0 right of the
  // last column.
  __device__ float Decayed(int t, int e, int tile, int i, int j, int last,
                           const HeadDecays& decays) const {
    if (j > last) return 0;
    const float between =
        t / 2 == tile
            ? decays.within[tile][i % kTile][j % kTile]
            : __fmul_rn(decays.from_first[i], decays.to_first[tile][j]);
    return __fmul_rn(of[t][e], between);
  }
};

// L of rows kTile * tile ... up to the tile of the diagonal.
__device__ inline void StoreL(const Products& products, int tile, int lane,
                              const HeadDecays& decays,
                              float (&l)[kChunk][kPitch]) {
#pragma unroll
  for (int t = 0; t < 2 * kTiles; ++t) {
    if (t / 2 > tile) break;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = kTile * tile + lane / 4 + e / 2 * 8;
      const int j = 8 * t + lane % 4 * 2 + e % 2;
      l[i][j] = __fmul_rn(decays.beta[i],
                          products.Decayed(t, e, tile, i, j, i - 1, decays));
    }
  }
}
// A likewise.
__device__ inline void StoreAttention(const Products& products, int tile,
                                      int lane, const HeadDecays& decays,
                                      ChunkHead& to) {
#pragma unroll
  for (int t = 0; t < 2 * kTiles; ++t) {
    if (t / 2 > tile) break;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = kTile * tile + lane / 4 + half * 8;
      const int j = 8 * t + lane % 4 * 2;
      const float x =
          products.Decayed(t, 2 * half, tile, i, j, i, decays) * kTriangleScale;
      const float y =
          products.Decayed(t, 2 * half + 1, tile, i, j + 1, i, decays) *
          kTriangleScale;
      Store(to.attention, TriangleRow(tile, t / 2) + i % kTile, t % 2, lane % 4,
            SplitOf(x, y));
    }
  }
}

// The tiles on the diagonal, a column a thread, by substitution.
__device__ inline void InvertDiagonal(HeadTriangles& head, int thread) {
  const int top = thread / kTile * kTile;
  const int column = thread % kTile;
  float x[kTile];
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    float row[kTile];
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 four = Load4(&head.l[top + i][top + j]);
      row[j] = four.x;
      row[j + 1] = four.y;
      row[j + 2] = four.z;
      row[j + 3] = four.w;
    }
    x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < i; ++j) x[i] = __fmaf_rn(-row[j], x[j], x[i]);
    head.inverse[top + i][top + column] = x[i];
  }
}

// Row kI of tiles left of the diagonal, from the rows above it: with T the
// inverse, T_IJ = -T_II sum of L_IK T_KJ over J <= K < I. By the threads of all
// heads, two rows of four columns each.
template <int kI>
__device__ inline void InvertRow(HeadTriangles& head, int thread) {
  const int r = thread / kTile;
  const int column = thread % kTile * 4;
  const bool takes_part = column < kTile * kI;
  constexpr int kApart = kHeadThreads / kTile;
  static_assert(2 * kApart == kTile);
  if (takes_part) {
    float4 sum0 = {0, 0, 0, 0};
    float4 sum1 = {0, 0, 0, 0};
    MulAddRows<kTile * kI>(head.l[kTile * kI + r],
                           head.l[kTile * kI + r + kApart],
                           &head.inverse[0][column], sum0, sum1);
    *reinterpret_cast<float4*>(&head.sums[r][column]) = sum0;
    *reinterpret_cast<float4*>(&head.sums[r + kApart][column]) = sum1;
  }
  __syncthreads();
  if (takes_part) {
    float4 x0 = {0, 0, 0, 0};
    float4 x1 = {0, 0, 0, 0};
    MulAddRows<kTile>(&head.inverse[kTile * kI + r][kTile * kI],
                      &head.inverse[kTile * kI + r + kApart][kTile * kI],
                      &head.sums[0][column], x0, x1);
    *reinterpret_cast<float4*>(&head.inverse[kTile * kI + r][column]) = {
        -x0.x, -x0.y, -x0.z, -x0.w};
    *reinterpret_cast<float4*>(
        &head.inverse[kTile * kI + r + kApart][column]) = {-x1.x, -x1.y, -x1.z,
                                                           -x1.w};
  }
  __syncthreads();
}

// By the threads of a head.
__device__ inline void StoreInverse(const HeadTriangles& head, int thread,
                                    Triangle& to) {
  constexpr int kUnitsOfTile = kTile * kTileUnits;
  static_assert(kTiles * kUnitsOfTile <= kHeadThreads);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    // The tiles of row i, a unit a thread.
    const int j = thread / kUnitsOfTile;
    if (j > i) continue;
    const int row = thread / kTileUnits % kTile;
    const int unit = thread % kTileUnits;
    const float* from = &head.inverse[kTile * i + row][kTile * j + 8 * unit];
    SplitPair pairs[4];
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      pairs[p] = SplitOf(__fmul_rn(from[2 * p], kTriangleScale),
                         __fmul_rn(from[2 * p + 1], kTriangleScale));
    }
    const int at = UnitOffset<kTileUnits>(TriangleRow(i, j) + row, unit);
    *reinterpret_cast<uint4*>(to.high + at) = {pairs[0].high, pairs[1].high,
                                               pairs[2].high, pairs[3].high};
    *reinterpret_cast<uint4*>(to.low + at) = {pairs[0].low, pairs[1].low,
                                              pairs[2].low, pairs[3].low};
  }
}

__device__ inline void CopyKeys(const ChunkKeys& from, ChunkKeys& to) {
  const auto* in = reinterpret_cast<const uint4*>(&from);
  auto* out = reinterpret_cast<uint4*>(&to);
#pragma unroll 4
  for (int i = threadIdx.x; i < static_cast<int>(sizeof(ChunkKeys) / 16);
       i += kThreads) {
    out[i] = in[i];
  }
}

// Grid: chunk of the segment, key head.
__global__ void __launch_bounds__(kThreads, 2)
    TriangleKernel(const DeltaRuleArgs args, const ChunkSegment segment) {
  extern __shared__ __align__(128) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  // A short and a long row of tiles for the two warps of a scheduler.
  const int tile = warp < kTiles ? warp : kWarps - 1 - warp;
  DependencyWait();

  const int64_t first = (segment.first + blockIdx.x) * kChunk;
  const int64_t live = *args.rows.live;
  if (first >= live) return;
  const int count = static_cast<int>(min(int64_t{kChunk}, live - first));
  const int64_t key_head = blockIdx.y;
  const int64_t heads = args.value_heads / args.key_heads;
  ChunkHead* to =
      segment.heads + blockIdx.x * args.value_heads + key_head * heads;

  // What decays are made from, by a warp a head, is asked for early.
  TokenGates gates;
  const auto load_gates = [&](int64_t head) {
    if (warp < kHeads && head + warp < heads) {
      gates.Load(args, key_head * heads + head + warp, first, count, lane);
    }
  };
  load_gates(0);
  NormaliseKeys(args, key_head, first, count, warp, lane, shared.keys);
  __syncthreads();
  Products products;
  products.Make(shared.keys, warp >= kTiles, tile, lane);
  CopyKeys(shared.keys, segment.keys[blockIdx.x * args.key_heads + key_head]);

  const int of_head = threadIdx.x / kHeadThreads;
  const int thread = threadIdx.x % kHeadThreads;
  HeadTriangles& own = shared.heads[of_head];
  for (int64_t head = 0; head < heads; head += kHeads) {
    const int num_heads = static_cast<int>(min(int64_t{kHeads}, heads - head));
    const bool has_head = of_head < num_heads;
    if (warp < num_heads) {
      MakeDecays(args, key_head * heads + head + warp, gates, count, lane,
                 to[head + warp], shared.decays[warp]);
    }
    load_gates(head + kHeads);
    // The decays are there; the keys, or the triangles before these, done with.
    __syncthreads();
    if (has_head) {
      MakeDecaysBetween<kHeadThreads>(shared.decays[of_head], thread);
      // No product reaches above the diagonal of the inverse's tiles.
      for (int i = thread; i < kChunk * kPitch; i += kHeadThreads) {
        own.inverse[i / kPitch][i % kPitch] = 0;
      }
    }
    __syncthreads();
    for (int h = 0; h < num_heads; ++h) {
      if (warp < kTiles) {
        StoreL(products, tile, lane, shared.decays[h], shared.heads[h].l);
      } else {
        StoreAttention(products, tile, lane, shared.decays[h], to[head + h]);
      }
    }
    __syncthreads();
    if (has_head && thread < kChunk) InvertDiagonal(own, thread);
    __syncthreads();
    // Of a head that there is not, whatever memory holds.
    InvertRow<1>(own, thread);
    InvertRow<2>(own, thread);
    InvertRow<3>(own, thread);
    if (has_head) StoreInverse(own, thread, to[head + of_head].inverse);
  }
}

}  // namespace

Status MakeTriangles(Stream stream, const DeltaRuleArgs& args,
                     const ChunkSegment& segment) {
  constexpr int kBytes = sizeof(Shared);
  const Status status = AllowSharedMemory(TriangleKernel, kBytes);
  if (status != kOk) return status;
  const dim3 grid(static_cast<unsigned>(segment.count),
                  static_cast<unsigned>(args.key_heads));
  return Launch(TriangleKernel, grid, kThreads, kBytes, stream, args, segment);
}

}  // namespace signet::backend::gpu
