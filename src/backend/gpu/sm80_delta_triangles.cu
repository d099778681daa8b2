// The part of the chunked delta rule that does not need the state, all chunks
// and heads at once: keys and queries normalised and split, the decays, and the
// two triangles of a chunk (ChunkHead), the first one inverted. The inverse is
// made in f32: its elements are what one token's value does to another's delta,
// at most 1, so that nothing grows.

#include "backend/gpu/sm80_delta_chunk.cuh"
#include "backend/gpu/stored_bits.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
// Value heads whose decays are made at a time, a warp each.
constexpr int kDecayHeads = 4;
// A row of a triangle in shared memory, padded so that rows differ in banks.
constexpr int kPitch = kChunk + 4;
static_assert(kKeyDim == kWarpValues);
static_assert(kWarps == 2 * kTiles);

struct Shared {
  ChunkKeys keys;
  alignas(16) float l[kChunk][kPitch];        // L
  alignas(16) float inverse[kChunk][kPitch];  // (I + L)^-1
  alignas(16) float sums[kTile][kPitch];
  double log_decay[kDecayHeads][kChunk];  // G
  float beta[kDecayHeads][kChunk];
};

__device__ inline float4 Load4(const float* x) {
  return *reinterpret_cast<const float4*>(x);
}
// sum + x . rows of four columns.
__device__ inline float4 MulAdd(float x, float4 row, float4 sum) {
  return {__fmaf_rn(x, row.x, sum.x), __fmaf_rn(x, row.y, sum.y),
          __fmaf_rn(x, row.z, sum.z), __fmaf_rn(x, row.w, sum.w)};
}
// sum + the products of a[0 ... kCount - 1] and rows of kPitch floats.
template <int kCount>
__device__ inline float4 MulAddRows(const float* a, const float* rows,
                                    float4 sum) {
#pragma unroll
  for (int j = 0; j < kCount; j += 4) {
    const float4 x = Load4(a + j);
    sum = MulAdd(x.x, Load4(rows + j * kPitch), sum);
    sum = MulAdd(x.y, Load4(rows + (j + 1) * kPitch), sum);
    sum = MulAdd(x.z, Load4(rows + (j + 2) * kPitch), sum);
    sum = MulAdd(x.w, Load4(rows + (j + 3) * kPitch), sum);
  }
  return sum;
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

// The gates of a chunk and a value head, by one warp, two tokens a lane. G is
// summed in double: one decay may be e^-300 and its neighbours near 1.
__device__ inline void MakeDecays(const DeltaRuleArgs& args, int64_t value_head,
                                  int64_t first, int count, int lane,
                                  ChunkHead& to, double* log_decay,
                                  float* beta) {
  const float a_log =
      FromBits(LoadBits(args.a_log, value_head), args.a_log.dtype);
  const float dt_bias =
      FromBits(LoadBits(args.dt_bias, value_head), args.dt_bias.dtype);
  double sum[2] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane + i;
    const bool live = t < count;
    const int64_t at = (first + (live ? t : 0)) * args.value_heads + value_head;
    const float b = live ? Sigmoid(args.b[at]) : 0.0f;
    if (live) sum[i] = double{LogDecayOf(args.a[at], a_log, dt_bias)};
    beta[t] = b;
    to.beta[t] = b;
  }
  sum[1] = __dadd_rn(sum[0], sum[1]);
  double before = sum[1];
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const double other = __shfl_up_sync(~0u, before, distance);
    if (lane >= distance) before = __dadd_rn(before, other);
  }
  const double all = __shfl_sync(~0u, before, kWarpSize - 1);
  before = __shfl_up_sync(~0u, before, 1);
  if (lane == 0) before = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane + i;
    const double g = __dadd_rn(before, sum[i]);
    log_decay[t] = g;
    to.decay[t] = DecayOf(static_cast<float>(g));
    to.rest[t] = DecayOf(static_cast<float>(__dadd_rn(all, -g)));
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
  // Of row i and column j, decayed from j to i; 0 right of the last column.
  __device__ float Decayed(int t, int e, int i, int j, int last,
                           const double* log_decay) const {
    if (j > last) return 0;
    const float between =
        DecayOf(static_cast<float>(__dadd_rn(log_decay[i], -log_decay[j])));
    return __fmul_rn(of[t][e], between);
  }
};

// L of rows kTile * tile ... up to the tile of the diagonal.
__device__ inline void StoreL(const Products& products, int tile, int lane,
                              const double* log_decay, const float* beta,
                              float (&l)[kChunk][kPitch]) {
#pragma unroll
  for (int t = 0; t < 2 * kTiles; ++t) {
    if (t / 2 > tile) break;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = kTile * tile + lane / 4 + e / 2 * 8;
      const int j = 8 * t + lane % 4 * 2 + e % 2;
      l[i][j] =
          __fmul_rn(beta[i], products.Decayed(t, e, i, j, i - 1, log_decay));
    }
  }
}
// A likewise.
__device__ inline void StoreAttention(const Products& products, int tile,
                                      int lane, const double* log_decay,
                                      ChunkHead& to) {
#pragma unroll
  for (int t = 0; t < 2 * kTiles; ++t) {
    if (t / 2 > tile) break;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = kTile * tile + lane / 4 + half * 8;
      const int j = 8 * t + lane % 4 * 2;
      const float x =
          products.Decayed(t, 2 * half, i, j, i, log_decay) * kTriangleScale;
      const float y =
          products.Decayed(t, 2 * half + 1, i, j + 1, i, log_decay) *
          kTriangleScale;
      Store(to.attention, TriangleRow(tile, t / 2) + i % kTile, t % 2, lane % 4,
            SplitOf(x, y));
    }
  }
}

// The tiles on the diagonal, a column a thread of the first two warps, by
// substitution.
__device__ inline void InvertDiagonal(Shared& shared) {
  const int top = threadIdx.x / kTile * kTile;
  const int column = threadIdx.x % kTile;
  float x[kTile];
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    float row[kTile];
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 four = Load4(&shared.l[top + i][top + j]);
      row[j] = four.x;
      row[j + 1] = four.y;
      row[j + 2] = four.z;
      row[j + 3] = four.w;
    }
    x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < i; ++j) x[i] = __fmaf_rn(-row[j], x[j], x[i]);
    shared.inverse[top + i][top + column] = x[i];
  }
}

// Row kI of tiles left of the diagonal, from the rows above it: with T the
// inverse, T_IJ = -T_II sum of L_IK T_KJ over J <= K < I. By all threads.
template <int kI>
__device__ inline void InvertRow(Shared& shared) {
  const int r = threadIdx.x / kTile;
  const int column = threadIdx.x % kTile * 4;
  const bool takes_part = column < kTile * kI;
  if (takes_part) {
    *reinterpret_cast<float4*>(&shared.sums[r][column]) =
        MulAddRows<kTile * kI>(shared.l[kTile * kI + r],
                               &shared.inverse[0][column], float4{0, 0, 0, 0});
  }
  __syncthreads();
  if (takes_part) {
    const float4 x =
        MulAddRows<kTile>(&shared.inverse[kTile * kI + r][kTile * kI],
                          &shared.sums[0][column], float4{0, 0, 0, 0});
    *reinterpret_cast<float4*>(&shared.inverse[kTile * kI + r][column]) = {
        -x.x, -x.y, -x.z, -x.w};
  }
  __syncthreads();
}

__device__ inline void StoreInverse(const Shared& shared, Triangle& to) {
  constexpr int kUnitsOfTile = kTile * kTileUnits;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    // The tiles of row i, a unit a thread.
    const int j = threadIdx.x / kUnitsOfTile;
    if (j > i) continue;
    const int row = threadIdx.x / kTileUnits % kTile;
    const int unit = threadIdx.x % kTileUnits;
    const float* from = &shared.inverse[kTile * i + row][kTile * j + 8 * unit];
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

  NormaliseKeys(args, key_head, first, count, warp, lane, shared.keys);
  // No product reaches above the diagonal of the inverse's tiles.
  for (int i = threadIdx.x; i < kChunk * kPitch; i += kThreads) {
    shared.inverse[i / kPitch][i % kPitch] = 0;
  }
  __syncthreads();
  Products products;
  products.Make(shared.keys, warp >= kTiles, tile, lane);
  CopyKeys(shared.keys, segment.keys[blockIdx.x * args.key_heads + key_head]);

  for (int64_t head = 0; head < heads; ++head) {
    const int part = static_cast<int>(head % kDecayHeads);
    if (part == 0 && warp < kDecayHeads && head + warp < heads) {
      MakeDecays(args, key_head * heads + head + warp, first, count, lane,
                 to[head + warp], shared.log_decay[warp], shared.beta[warp]);
    }
    // The decays are there, and the inverse before this one is stored.
    __syncthreads();
    const double* log_decay = shared.log_decay[part];
    if (warp < kTiles) {
      StoreL(products, tile, lane, log_decay, shared.beta[part], shared.l);
    } else {
      StoreAttention(products, tile, lane, log_decay, to[head]);
    }
    __syncthreads();
    if (threadIdx.x < kChunk) InvertDiagonal(shared);
    __syncthreads();
    InvertRow<1>(shared);
    InvertRow<2>(shared);
    InvertRow<3>(shared);
    StoreInverse(shared, to[head].inverse);
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
