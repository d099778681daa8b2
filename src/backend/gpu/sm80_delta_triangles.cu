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
// Value heads worked at once, half of the warps each where it matters.
constexpr int kHeads = 2;
constexpr int kHeadWarps = kWarps / kHeads;
// Tiles of a triangle.
constexpr int kAllTiles = TriangleRow(kTiles, 0) / kTile;
// A row of a triangle in shared memory, padded so that rows differ in banks.
constexpr int kPitch = kChunk + 4;
static_assert(kKeyDim == kWarpValues);
static_assert(kWarps == 2 * kTiles && kHeadWarps == 4);

struct HeadWork {
  alignas(16) float l[kChunk][kPitch];  // L
  // (I + L)^-1; before, exp(G_i - G_j) up to the diagonal.
  alignas(16) float inverse[kChunk][kPitch];
  alignas(16) float sums[kTile][kPitch];
};
struct Shared {
  // The heads' work begins when the products are made and the keys copied.
  union {
    ChunkKeys keys;
    HeadWork work[kHeads];
  };
  double log_decay[kHeads][kChunk];  // G
  float beta[kHeads][kChunk];
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

// The sums over the lanes of 16 values, that of value i in lanes 2 i and
// 2 i + 1; each is added in the order of WarpSum.
__device__ inline float WarpSums(float (&x)[kTile], int lane) {
  static_assert(kTile == kWarpSize / 2);
#pragma unroll
  for (int step = 1; step <= 4; ++step) {
    const int count = kTile >> step;
    const bool upper = (lane & 2 * count) != 0;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float first = x[i];
      const float second = x[i + count];
      const float other =
          __shfl_xor_sync(~0u, upper ? first : second, 2 * count);
      x[i] = __fadd_rn(upper ? second : first, other);
    }
  }
  return __fadd_rn(x[0], __shfl_xor_sync(~0u, x[0], 1));
}

// The keys and queries of `count` tokens from row `first` on. The factors are
// those of FactorsOf, of all tokens of a warp at once, one a lane.
__device__ inline void NormaliseKeys(const DeltaRuleArgs& args,
                                     int64_t key_head, int64_t first, int count,
                                     int warp, int lane, ChunkKeys& keys) {
  constexpr int kEach = kChunk / kWarps;
  static_assert(2 * kEach == kTile);
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
  float squares[2 * kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    squares[2 * i] = Dot4(q[i], q[i], 0.0f);
    squares[2 * i + 1] = Dot4(k[i], k[i], 0.0f);
  }
  const float all = WarpSums(squares, lane);
  const bool of_query = lane / 2 % 2 == 0;
  const float inverse = InvSqrt(__fadd_rn(all, 1e-6f));
  const float factor = __fmul_rn(
      of_query ? __fmul_rn(inverse, InvSqrt(static_cast<float>(kKeyDim)))
               : inverse,
      kKeyScale);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int t = warp + i * kWarps;
    StoreVector(keys.q, t, lane, q[i], __shfl_sync(~0u, factor, 4 * i));
    StoreVector(keys.k, t, lane, k[i], __shfl_sync(~0u, factor, 4 * i + 2));
  }
}

// DecayOf without a branch, so that many are under way at once.
__device__ inline float DecayOfAny(float x) {
  const float decay = Exp(fmaxf(x, -80.0f));
  return x >= -80.0f ? decay : 0.0f;
}

// What the gates of a chunk and a value head are made of, two tokens a lane of
// a warp; asked for long before it is used.
struct GateInputs {
  float a[2];
  float b[2];
  uint32_t a_log;
  uint32_t dt_bias;

  __device__ void Load(const DeltaRuleArgs& args, int64_t value_head,
                       int64_t first, int count, int lane) {
    a_log = LoadBits(args.a_log, value_head);
    dt_bias = LoadBits(args.dt_bias, value_head);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int t = 2 * lane + i;
      const int64_t row = first + (t < count ? t : 0);
      a[i] = args.a[row * args.value_heads + value_head];
      b[i] = args.b[row * args.value_heads + value_head];
    }
  }
};

// The gates of a chunk and a value head, by one warp. G is summed in double:
// one decay may be e^-300 and its neighbours near 1.
__device__ inline void MakeDecays(const DeltaRuleArgs& args,
                                  const GateInputs& gates, int count, int lane,
                                  ChunkHead& to, double* log_decay,
                                  float* beta) {
  const float a_log = FromBits(gates.a_log, args.a_log.dtype);
  const float dt_bias = FromBits(gates.dt_bias, args.dt_bias.dtype);
  double sum[2] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane + i;
    const bool live = t < count;
    const float b = live ? Sigmoid(gates.b[i]) : 0.0f;
    if (live) sum[i] = double{LogDecayOf(gates.a[i], a_log, dt_bias)};
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
    to.decay[t] = DecayOfAny(static_cast<float>(g));
    to.rest[t] = DecayOfAny(static_cast<float>(__dadd_rn(all, -g)));
  }
}

// exp(G_i - G_j) of the tiles up to the diagonal, an element of each tile a
// thread; 0 right of the diagonal.
__device__ inline void MakeBetween(const double* log_decay, int warp, int lane,
                                   float (&between)[kChunk][kPitch]) {
  // The two rows of a warp differ in banks.
  const int row = warp / 4 * 8 + lane / kTile * 4 + warp % 4;
  const int column = lane % kTile;
  // All loads before the first store, which the compiler cannot tell apart.
  double of_row[kTiles];
  double of_column[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    of_row[t] = log_decay[kTile * t + row];
    of_column[t] = log_decay[kTile * t + column];
  }
  float decay[kAllTiles];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int j = 0; j <= i; ++j) {
      decay[TriangleRow(i, j) / kTile] =
          DecayOfAny(static_cast<float>(__dadd_rn(of_row[i], -of_column[j])));
    }
  }
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int j = 0; j <= i; ++j) {
      between[kTile * i + row][kTile * j + column] =
          j < i || column <= row ? decay[TriangleRow(i, j) / kTile] : 0.0f;
    }
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
};

// What a thread multiplies its products by, all loaded before the first result
// is stored.
struct BetweenPairs {
  float2 of[2 * kTiles][2];

  __device__ BetweenPairs(const HeadWork& work, int tile, int lane) {
#pragma unroll
    for (int t = 0; t < 2 * kTiles; ++t) {
      if (t / 2 > tile) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        of[t][half] = *reinterpret_cast<const float2*>(
            &work.inverse[RowOf(tile, half, lane)][ColumnOf(t, lane)]);
      }
    }
  }
  static __device__ int RowOf(int tile, int half, int lane) {
    return kTile * tile + lane / 4 + half * 8;
  }
  static __device__ int ColumnOf(int t, int lane) {
    return 8 * t + lane % 4 * 2;
  }
};

// L of rows kTile * tile ... up to the tile of the diagonal; what is right of
// its elements is not read.
__device__ inline void StoreL(const Products& products, int tile, int lane,
                              const float* beta, HeadWork& work) {
  const BetweenPairs between(work, tile, lane);
  const float betas[2] = {beta[between.RowOf(tile, 0, lane)],
                          beta[between.RowOf(tile, 1, lane)]};
#pragma unroll
  for (int t = 0; t < 2 * kTiles; ++t) {
    if (t / 2 > tile) break;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* of = products.of[t] + 2 * half;
      const float2 decay = between.of[t][half];
      *reinterpret_cast<float2*>(
          &work.l[between.RowOf(tile, half, lane)][between.ColumnOf(t, lane)]) =
          {__fmul_rn(betas[half], __fmul_rn(of[0], decay.x)),
           __fmul_rn(betas[half], __fmul_rn(of[1], decay.y))};
    }
  }
}
// A likewise, with zeros right of the diagonal.
__device__ inline void StoreAttention(const Products& products, int tile,
                                      int lane, const HeadWork& work,
                                      ChunkHead& to) {
  const BetweenPairs between(work, tile, lane);
#pragma unroll
  for (int t = 0; t < 2 * kTiles; ++t) {
    if (t / 2 > tile) break;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = between.RowOf(tile, half, lane);
      const int j = between.ColumnOf(t, lane);
      const float* of = products.of[t] + 2 * half;
      const float2 decay = between.of[t][half];
      const float x = __fmul_rn(of[0], decay.x) * kTriangleScale;
      const float y = __fmul_rn(of[1], decay.y) * kTriangleScale;
      Store(to.attention, TriangleRow(tile, t / 2) + i % kTile, t % 2, lane % 4,
            SplitOf(j <= i ? x : 0.0f, j < i ? y : 0.0f));
    }
  }
}

// A column of a tile on the diagonal, by substitution: a row is taken from all
// below it as soon as it is known.
__device__ inline void InvertDiagonal(int tile, int column, HeadWork& work) {
  const int top = kTile * tile;
  float x[kTile];
#pragma unroll
  for (int i = 0; i < kTile; ++i) x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
  for (int first = 0; first < kTile; first += 4) {
    float4 rows[kTile];
#pragma unroll
    for (int i = first + 1; i < kTile; ++i) {
      rows[i] = Load4(&work.l[top + i][top + first]);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = first + j + 1; i < kTile; ++i) {
        const float4& row = rows[i];
        const float l = j == 0   ? row.x
                        : j == 1 ? row.y
                        : j == 2 ? row.z
                                 : row.w;
        x[i] = __fmaf_rn(-l, x[first + j], x[i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kTile; ++i) work.inverse[top + i][top + column] = x[i];
}

// Eight rows of tile [kI, kJ] of sum of L_IK T_KJ over J <= K < I, with T the
// inverse: four columns of row `r` a thread.
template <int kI, int kJ>
__device__ inline void SumTile(int r, int column, HeadWork& work) {
  static_assert(kJ < kI);
  const int at = kTile * kJ + column;
  *reinterpret_cast<float4*>(&work.sums[r][at]) = MulAddRows<kTile*(kI - kJ)>(
      &work.l[kTile * kI + r][kTile * kJ], &work.inverse[kTile * kJ][at],
      float4{0, 0, 0, 0});
}

// Row kI of tiles left of the diagonal, from the rows above it: T_IJ is -T_II
// times that sum. By all threads; warp `warp` of those of a head, if `works`.
template <int kI>
__device__ inline void InvertRow(bool works, int warp, int lane,
                                 HeadWork& work) {
  const int column = lane % 4 * 4;
  if (works) {
    // The long sum of the first tile, or those of the others.
    const int r = warp % 2 * 8 + lane / 4;
    if (warp < 2) {
      SumTile<kI, 0>(r, column, work);
    } else {
      if constexpr (kI > 1) SumTile<kI, 1>(r, column, work);
      if constexpr (kI > 2) SumTile<kI, 2>(r, column, work);
    }
  }
  __syncthreads();
  if (works) {
    for (int half = warp; half < 2 * kI; half += kHeadWarps) {
      const int row = kTile * kI + half % 2 * 8 + lane / 4;
      const int at = half / 2 * kTile + column;
      const float4 x = MulAddRows<kTile>(&work.inverse[row][kTile * kI],
                                         &work.sums[0][at], float4{0, 0, 0, 0});
      *reinterpret_cast<float4*>(&work.inverse[row][at]) = {-x.x, -x.y, -x.z,
                                                            -x.w};
    }
  }
  __syncthreads();
}

// Tile `tile` of the inverse, row by row as a Triangle's, a unit a lane.
__device__ inline void StoreInverse(const HeadWork& work, int tile, int lane,
                                    Triangle& to) {
  static_assert(kTile * kTileUnits == kWarpSize && kTiles == 4);
  const int i = (tile > 0) + (tile > 2) + (tile > 5);
  const int j = tile - i * (i + 1) / 2;
  const int row = lane / kTileUnits;
  const int unit = lane % kTileUnits;
  const float* from = &work.inverse[kTile * i + row][kTile * j + 8 * unit];
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

__device__ inline void CopyKeys(const ChunkKeys& from, ChunkKeys& to) {
  const auto* in = reinterpret_cast<const uint4*>(&from);
  auto* out = reinterpret_cast<uint4*>(&to);
#pragma unroll 8
  for (int i = threadIdx.x; i < static_cast<int>(sizeof(ChunkKeys) / 16);
       i += kThreads) {
    out[i] = in[i];
  }
}

// Grid: chunk of the segment, key head, value heads of it by kHeads.
__global__ void __launch_bounds__(kThreads, 2)
    TriangleKernel(const DeltaRuleArgs args, const ChunkSegment segment) {
  extern __shared__ __align__(128) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  // A short and a long row of tiles for the two warps of a scheduler.
  const int tile = warp < kTiles ? warp : kWarps - 1 - warp;
  const int each =
      static_cast<int>(args.value_heads) / static_cast<int>(args.key_heads);
  const int key_head = static_cast<int>(blockIdx.y);
  const int head = key_head * each + static_cast<int>(blockIdx.z) * kHeads;
  const int heads = min(kHeads, (key_head + 1) * each - head);
  DependencyWait();

  const int64_t first = (segment.first + blockIdx.x) * kChunk;
  const int64_t live = *args.rows.live;
  if (first >= live) return;
  const int count = static_cast<int>(min(int64_t{kChunk}, live - first));
  ChunkHead* to = segment.heads + blockIdx.x * args.value_heads + head;

  // Decays are made by the two warps with the least to multiply, a head each.
  const int mine = warp == 0 ? 0 : warp == kWarps - 1 ? 1 : kHeads;
  GateInputs gates = {};
  if (mine < heads) gates.Load(args, head + mine, first, count, lane);
  NormaliseKeys(args, key_head, first, count, warp, lane, shared.keys);
  __syncthreads();
  if (mine < heads) {
    MakeDecays(args, gates, count, lane, to[mine], shared.log_decay[mine],
               shared.beta[mine]);
  }
  Products products;
  products.Make(shared.keys, warp >= kTiles, tile, lane);
  if (blockIdx.z == 0) {
    CopyKeys(shared.keys, segment.keys[blockIdx.x * args.key_heads + key_head]);
  }
  __syncthreads();

#pragma unroll 1
  for (int h = 0; h < heads; ++h) {
    MakeBetween(shared.log_decay[h], warp, lane, shared.work[h].inverse);
  }
  __syncthreads();
#pragma unroll 1
  for (int h = 0; h < heads; ++h) {
    if (warp < kTiles) {
      StoreL(products, tile, lane, shared.beta[h], shared.work[h]);
    } else {
      StoreAttention(products, tile, lane, shared.work[h], to[h]);
    }
  }
  __syncthreads();
  constexpr int kColumns = kTiles * kTile;
  if (threadIdx.x < heads * kColumns) {
    InvertDiagonal(threadIdx.x / kTile % kTiles, threadIdx.x % kTile,
                   shared.work[threadIdx.x / kColumns]);
  }
  __syncthreads();
  const int part = warp / kHeadWarps;
  HeadWork& work = shared.work[part];
  InvertRow<1>(part < heads, warp % kHeadWarps, lane, work);
  InvertRow<2>(part < heads, warp % kHeadWarps, lane, work);
  InvertRow<3>(part < heads, warp % kHeadWarps, lane, work);
#pragma unroll 1
  for (int i = warp; i < heads * kAllTiles; i += kWarps) {
    const int h = i / kAllTiles;
    StoreInverse(shared.work[h], i % kAllTiles, lane, to[h].inverse);
  }
}

}  // namespace

Status MakeTriangles(Stream stream, const DeltaRuleArgs& args,
                     const ChunkSegment& segment) {
  constexpr int kBytes = sizeof(Shared);
  const Status status = AllowSharedMemory(TriangleKernel, kBytes);
  if (status != kOk) return status;
  const int64_t each = args.value_heads / args.key_heads;
  const dim3 grid(static_cast<unsigned>(segment.count),
                  static_cast<unsigned>(args.key_heads),
                  static_cast<unsigned>((each + kHeads - 1) / kHeads));
  return Launch(TriangleKernel, grid, kThreads, kBytes, stream, args, segment);
}

}  // namespace signet::backend::gpu
