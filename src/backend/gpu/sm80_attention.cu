// Attention of a prefill over a bf16 cache, on the tensor cores: queries and
// weights are rounded to bf16, sums, maxima and totals are f32 (Dao,
// "FlashAttention-2", 2023). A block takes kRows pairs of a row and a query
// head of one kv head, a warp 16 of them; keys and values pass through shared
// memory in tiles of 64 positions, the next ones on their way while these are
// used.
//
// Tiles begin at multiples of 64 from position 0 and what a row does not see
// adds exact zeros, so its bits depend on its own position alone.

#include "backend/gpu/attention_rows.cuh"
#include "backend/gpu/attention_split.cuh"
#include "backend/gpu/kv_rows.cuh"
#include "backend/gpu/sm80_attention_mma.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kRows = kWarps * 16;
constexpr int kKeys = 64;
constexpr unsigned kAllLanes = 0xffffffff;

// Rows of kDim bf16 in chunks of 16 bytes, chunks permuted within a row so that
// the 8 rows of a matrix lie in different banks.
template <int kDim>
struct Tile {
  static constexpr int kChunks = kDim / 8;
  __device__ static int At(int row, int chunk) {
    return row * kChunks + (chunk ^ (row & 7));
  }
};

template <int kDim>
struct FlashShared {
  uint4 query[kRows * kDim / 8];
  uint4 key[2][kKeys * kDim / 8];
  uint4 value[2][kKeys * kDim / 8];
};

// kKeys positions from `first` on; zeros past `last`, of which memory may hold
// anything.
template <int kDim>
__device__ void StartTile(const KvView& cache, const void* from, int32_t slot,
                          int64_t kv_head, int first, int last, uint4* to) {
  constexpr int kChunks = Tile<kDim>::kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  const int64_t stride = cache.num_kv_heads * kDim;
  const int start = static_cast<int>(threadIdx.x) / kChunks;
  constexpr int kStep = kThreads / kChunks;
  const auto* elements = static_cast<const __nv_bfloat16*>(from) + chunk * 8;
  if (cache.page_size % kKeys == 0) {
    const auto* page = elements + KvOffset(cache, slot, first, kv_head);
#pragma unroll
    for (int i = 0; i < kKeys / kStep; ++i) {
      const int row = start + i * kStep;
      CopyAsync(to + Tile<kDim>::At(row, chunk), page + row * stride,
                first + row <= last);
    }
    return;
  }
#pragma unroll 1
  for (int row = start; row < kKeys; row += kStep) {
    const int key = first + row;
    CopyAsync(to + Tile<kDim>::At(row, chunk),
              elements + KvOffset(cache, slot, min(key, last), kv_head),
              key <= last);
  }
}

template <int kDim>
__device__ void StoreQueries(const AttentionArgs& args, const FlashRows& rows,
                             uint4* to) {
  constexpr int kChunks = Tile<kDim>::kChunks;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks;
       i += kThreads) {
    const int m = i / kChunks;
    const int chunk = i % kChunks;
    const int row = m / rows.group;
    uint4 packed = make_uint4(0, 0, 0, 0);
    if (row < rows.count) {
      const int64_t head = rows.first_head + (m - row * rows.group);
      const auto* q = reinterpret_cast<const float4*>(
          args.q + ((rows.first + row) * args.heads + head) * kDim + chunk * 8);
      const float4 a = q[0];
      const float4 b = q[1];
      packed = make_uint4(PackBF16(a.x, a.y), PackBF16(a.z, a.w),
                          PackBF16(b.x, b.y), PackBF16(b.z, b.w));
    }
    to[Tile<kDim>::At(m, chunk)] = packed;
  }
}

// Lane (g, t) of a warp has of its rows g and g + 8: elements 2 h, 2 h + 1 of
// an accumulator are columns 2t, 2t + 1 of row g + 8 h.
template <int kDim>
struct FlashWarp {
  float max[2] = {-INFINITY, -INFINITY};
  float total[2] = {};  // of the lane's columns
  float sum[kDim / 8][4] = {};
  int32_t position[2];

  // scores[n]: keys 8 n ... 8 n + 7 of the tile.
  __device__ void Score(const uint4* query, const uint4* key, int warp,
                        int lane, float (&scores)[kKeys / 8][4]) const {
    const int query_row = warp * 16 + lane % 16;
    const int key_row = lane % 8 + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      uint32_t a[4];
      LoadMatrices(query + Tile<kDim>::At(query_row, 2 * k + lane / 16), a);
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        uint32_t b[4];
        LoadMatrices(
            key + Tile<kDim>::At(n * 16 + key_row, 2 * k + lane / 8 % 2), b);
        MultiplyAdd(scores[2 * n], a[0], a[1], a[2], a[3], b[0], b[1]);
        MultiplyAdd(scores[2 * n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
      }
    }
  }

  // Scores to weights under the new maxima.
  __device__ void Weigh(float scale, int first, bool masked, int lane,
                        float (&scores)[kKeys / 8][4]) {
    float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][i] = __fmul_rn(scores[n][i], scale);
        if (masked) {
          const int key = first + n * 8 + lane % 4 * 2 + i % 2;
          if (key > position[i / 2]) scores[n][i] = -INFINITY;
        }
        most[i / 2] = fmaxf(most[i / 2], scores[n][i]);
      }
    }
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      most[h] = fmaxf(most[h], __shfl_xor_sync(kAllLanes, most[h], 1));
      most[h] = fmaxf(most[h], __shfl_xor_sync(kAllLanes, most[h], 2));
      most[h] = fmaxf(most[h], max[h]);
      factor[h] = Exp(__fsub_rn(max[h], most[h]));
      max[h] = most[h];
    }
    float added[2] = {};
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][i] = Exp(__fsub_rn(scores[n][i], most[i / 2]));
        added[i / 2] = __fadd_rn(added[i / 2], scores[n][i]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      total[h] = __fmaf_rn(total[h], factor[h], added[h]);
    }
    // A factor of 1 changes nothing.
    if (!__any_sync(kAllLanes, factor[0] != 1.0f || factor[1] != 1.0f)) return;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum[n][i] = __fmul_rn(sum[n][i], factor[i / 2]);
      }
    }
  }

  __device__ void AddValues(const uint4* value, int lane,
                            const float (&weights)[kKeys / 8][4]) {
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      const float(&low)[4] = weights[2 * k];
      const float(&high)[4] = weights[2 * k + 1];
      const uint32_t a[4] = {PackBF16(low[0], low[1]), PackBF16(low[2], low[3]),
                             PackBF16(high[0], high[1]),
                             PackBF16(high[2], high[3])};
#pragma unroll
      for (int n = 0; n < kDim / 16; ++n) {
        uint32_t b[4];
        LoadTransposed(
            value + Tile<kDim>::At(k * 16 + lane % 16, 2 * n + lane / 16), b);
        MultiplyAdd(sum[2 * n], a[0], a[1], a[2], a[3], b[0], b[1]);
        MultiplyAdd(sum[2 * n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
      }
    }
  }

  __device__ void Store(const AttentionArgs& args, const FlashRows& rows,
                        int warp, int lane) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float all = total[h];
      all = __fadd_rn(all, __shfl_xor_sync(kAllLanes, all, 1));
      all = __fadd_rn(all, __shfl_xor_sync(kAllLanes, all, 2));
      const int m = warp * 16 + lane / 4 + 8 * h;
      const int row = m / rows.group;
      if (row >= rows.count) continue;
      const int64_t head = rows.first_head + (m - row * rows.group);
      const float inverse = __fdiv_rn(1.0f, all);
      const float* gate = GateOf(args, rows.first + row, head);
      float* out = args.out + ((rows.first + row) * args.heads + head) * kDim;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        const int e = n * 8 + lane % 4 * 2;
        const float2 of = *reinterpret_cast<const float2*>(gate + e);
        *reinterpret_cast<float2*>(out + e) =
            make_float2(Gated(sum[n][2 * h], inverse, of.x),
                        Gated(sum[n][2 * h + 1], inverse, of.y));
      }
    }
  }
};

template <int kDim>
__global__ void __launch_bounds__(kThreads, 1)
    FlashKernel(const AttentionArgs args) {
  extern __shared__ uint4 dynamic_shared[];
  auto& shared = *reinterpret_cast<FlashShared<kDim>*>(dynamic_shared);
  DependencyWait();
  const KvView& cache = args.cache;
  const int64_t kv_head = blockIdx.x;
  FlashRows rows;
  if (!FindFlashRows(args, kRows, rows)) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int last = rows.last_position;

  StartTile<kDim>(cache, cache.k, rows.slot, kv_head, 0, last, shared.key[0]);
  StartTile<kDim>(cache, cache.v, rows.slot, kv_head, 0, last, shared.value[0]);
  StoreQueries<kDim>(args, rows, shared.query);
  FlashWarp<kDim> sums;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = LiveRowOf(rows, warp * 16 + lane / 4 + 8 * h);
    sums.position[h] = args.rows.position[rows.first + row];
  }

  for (int first = 0; first <= last; first += kKeys) {
    const int now = first / kKeys % 2;
    const int next = first + kKeys;
    CommitCopies();
    WaitForCopies<0>();
    // Shows everyone's copies, and says that the tile before is free. The only
    // barrier of a tile, so that warps drift apart and use different units.
    __syncthreads();
    if (next <= last) {
      StartTile<kDim>(cache, cache.k, rows.slot, kv_head, next, last,
                      shared.key[1 - now]);
      StartTile<kDim>(cache, cache.v, rows.slot, kv_head, next, last,
                      shared.value[1 - now]);
    }
    float scores[kKeys / 8][4] = {};
    sums.Score(shared.query, shared.key[now], warp, lane, scores);
    sums.Weigh(args.scale, first, next - 1 > rows.first_position, lane, scores);
    sums.AddValues(shared.value[now], lane, scores);
  }
  sums.Store(args, rows, warp, lane);
}

template <int kDim>
Status LaunchDim(Stream stream, const AttentionArgs& args) {
  constexpr auto kBytes = static_cast<int>(sizeof(FlashShared<kDim>));
  const Status status = cudaFuncSetAttribute(
      FlashKernel<kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (status != kOk) return status;
  const int64_t per_block = kRows / (args.heads / args.cache.num_kv_heads);
  const int64_t tiles = (args.rows.capacity + per_block - 1) / per_block;
  return Launch(FlashKernel<kDim>,
                dim3(static_cast<unsigned>(args.cache.num_kv_heads),
                     static_cast<unsigned>(tiles)),
                dim3(kThreads), kBytes, stream, args);
}

}  // namespace

Status LaunchFlash(Stream stream, const AttentionArgs& args) {
  switch (args.cache.head_dim) {
    case 64:
      return LaunchDim<64>(stream, args);
    case 128:
      return LaunchDim<128>(stream, args);
    default:
      return LaunchDim<256>(stream, args);
  }
}

}  // namespace signet::backend::gpu
