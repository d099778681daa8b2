#pragma once
// The queries of a block of decode attention, in shared memory: read, or made
// from the row's inputs in fused launches together with the new key and value.
// A warp does one head, so that few steps need the whole block.

#include <cuda_bf16.h>

#include <cstdint>

#include "backend/gpu/attention_split.cuh"
#include "backend/gpu/rope.cuh"
#include "backend/gpu/sm80_attention_mma.cuh"

namespace signet::backend::gpu {

inline constexpr int kDecodeWarps = kTileHeads;
inline constexpr int kDecodeThreads = kDecodeWarps * kWarpSize;
inline constexpr int kDecodeKeys = 8;  // of a warp at a time

/// A head's query, then in its place its three bf16 parts as lanes (g, t) use
/// them: of dims 32 c + 8 t ... + 7 of head g, in parts[c][0][t] the high and
/// middle parts of the first four in turn, two dims each, in [1] of the others,
/// in [2] the low parts in the order of ScoreSums. Padded so that heads lie in
/// different banks.
template <int kDim>
union DecodeQuery {
  float x[kDim];
  uint4 parts[kDim / 32][3][4];
  uint4 padded[kDim / 32 * 12 + 4];
};

/// What a warp holds of the cache, see LoadKeys and LoadValues; at the end its
/// sums, padded against bank conflicts.
template <int kDim>
union DecodeTile {
  struct {
    uint4 key[kDim / 32][kWarpSize];
    uint4 value[2][kDim / 64][kWarpSize];
  } cached;
  float sums[kTileHeads][kDim + 4];
};

template <int kDim>
struct DecodeShared {
  DecodeTile<kDim> tile[kDecodeWarps];
  DecodeQuery<kDim> query[kTileHeads];
  float gate[kTileHeads][kDim];  // then its sigmoid; of a row of one split
  float key[kDim];
  float value[kDim];
  uint4 new_key[kDim / 8];  // bf16
  uint4 new_value[kDim / 8];
  float sin[kDim / 2];
  float cos[kDim / 2];
  float max[kDecodeWarps][kTileHeads];
  float total[kDecodeWarps][kTileHeads];
};

/// Where tokens of a slot lie, in elements of the cache. A page is looked up
/// some time before it is used.
struct DecodePages {
  const int32_t* table;
  int32_t size;
  uint32_t reciprocal;  // 2^32 / size, rounded up

  __device__ explicit DecodePages(const KvView& cache)
      : table(cache.page_table),
        size(static_cast<int32_t>(cache.page_size)),
        reciprocal(0xffffffffu / static_cast<uint32_t>(size) + 1) {}
  /// position / size: see HasDecodePages of the configuration.
  __device__ int32_t Index(int32_t position) const {
    return static_cast<int32_t>(
        __umulhi(static_cast<uint32_t>(position), reciprocal));
  }
  // Volatile, so that it is not put off to where the page is used.
  __device__ int32_t Load(int32_t position) const {
    return *static_cast<const volatile int32_t*>(table + Index(position));
  }
  __device__ int64_t Offset(const KvView& cache, int32_t page, int32_t position,
                            int64_t kv_head) const {
    const int64_t token =
        int64_t{page} * size + (position - Index(position) * size);
    return (token * cache.num_kv_heads + kv_head) * cache.head_dim;
  }
};

/// Starts the copy of a row of kDim floats by a warp.
template <int kDim>
__device__ inline void CopyHead(float* to, const float* from, bool wanted,
                                int lane) {
#pragma unroll
  for (int i = 0; i < kDim; i += 4 * kWarpSize) {
    const int e = i + 4 * lane;
    if (e < kDim) CopyAsync(to + e, from + e, wanted);
  }
}

/// What a block needs besides the cache, and what it makes of it. The warp's
/// head is the tile's of the same number. Warp 0 makes the new key, warp 1 the
/// new value, the last warps the rotation.
template <int kDim, bool kFused>
struct DecodeInputs {
  static constexpr int kValues = kDim / kWarpSize;
  const SplitAttention& attention;
  DecodeShared<kDim>& shared;
  int lane;
  int warp;
  NormWeights<kValues> q_norm;
  NormWeights<kValues> k_norm;  // warp 0
  float inv_freq;               // of the thread's pair

  __device__ static bool HoldsNew(const SplitPiece& piece) {
    return kFused && piece.position < piece.end;
  }
  __device__ static int Pair() {
    static_assert(kDim / 2 <= kDecodeThreads);
    return kDecodeThreads - 1 - static_cast<int>(threadIdx.x);
  }
  /// Pairs of the rotation.
  __device__ int Half() const {
    return kFused ? static_cast<int>(attention.ops.rope.rotary_dim / 2) : 0;
  }

  /// Calls body(head) for the gates that the warp makes: its own head's, and
  /// one of the warps of the rotation, no more than half of all, which make
  /// none.
  template <typename Body>
  __device__ void EachGate(const Body& body) const {
    const int last = kDecodeWarps - 1 - (Half() + kWarpSize - 1) / kWarpSize;
    const int other = 2 * last + 1 - warp;
    if (warp > last) return;
#pragma unroll 1
    for (int head = warp; head < kTileHeads;
         head = head == warp ? other : kTileHeads) {
      body(head);
    }
  }

  /// Weights only.
  __device__ void LoadWeights() {
    if constexpr (kFused) {
      const QkNormRopeArgs& args = attention.ops.rope;
      q_norm.Load(args.q_norm, kDim, lane);
      if (warp == 0) k_norm.Load(args.k_norm, kDim, lane);
      if (Pair() < Half()) inv_freq = args.inv_freq[Pair()];
    }
  }

  /// Starts to copy what the row has; nothing depends on its position.
  __device__ void Start(const SplitPiece& piece) {
    const AttentionArgs& args = attention.ops.attention;
    const bool wanted = warp < piece.num_heads;
    const int64_t head = piece.row * args.heads + piece.first_head + warp;
    const float* q = kFused ? attention.ops.rope.q_gate + head * 2 * kDim
                            : args.q + head * kDim;
    CopyHead<kDim>(shared.query[warp].x, q, wanted, lane);
    if constexpr (kFused) {
      const int64_t at =
          (piece.row * args.cache.num_kv_heads + piece.kv_head) * kDim;
      if (warp == 0) {
        CopyHead<kDim>(shared.key, attention.ops.rope.k + at, true, lane);
      }
      if (warp == 1) {
        CopyHead<kDim>(shared.value, attention.ops.append.v + at, true, lane);
      }
    }
    // A row of one split has no other.
    if (piece.split == 0) {
      EachGate([&](int i) {
        CopyHead<kDim>(shared.gate[i],
                       GateOf(args, piece.row, piece.first_head + i),
                       i < piece.num_heads, lane);
      });
    }
    CommitCopies();
  }

  /// Waits for the copies and norms the heads.
  __device__ void Norm(const SplitPiece& piece) {
    // Keeps the look-up of pages ahead of the wait.
    __syncwarp();
    WaitForCopies<0>();
    __syncwarp();
    if constexpr (kFused) {
      const QkNormRopeArgs& args = attention.ops.rope;
      float weights[kValues];
      q_norm.Values(args.q_norm.dtype, weights);
      float* head = shared.query[warp].x;
      bool also_key = warp == 0 && HoldsNew(piece);
#pragma unroll 1
      while (true) {
        float values[kValues];
        LoadHead(head, kDim, lane, values);
        NormHead(values, weights, args.eps, kDim, lane, head);
        if (!also_key) break;
        also_key = false;
        head = shared.key;
        k_norm.Values(args.k_norm.dtype, weights);
      }
    }
  }

  /// Sines and cosines, for the whole block.
  __device__ void MakeRotation(const SplitPiece& piece) {
    if (Pair() >= Half()) return;
    const SinCosPair pair = Rotation(inv_freq, piece.position);
    shared.sin[Pair()] = pair.sin;
    shared.cos[Pair()] = pair.cos;
  }

  /// After a barrier behind MakeRotation.
  __device__ void Rotate() {
    RotateHead(shared.sin, shared.cos, Half(), lane, shared.query[warp].x);
    __syncwarp();
  }

  /// After Rotate: the new key and value, appended by the first head tile.
  /// `page` is that of the row's position.
  __device__ void Append(const SplitPiece& piece, const DecodePages& pages,
                         int32_t page) {
    if (!HoldsNew(piece) || warp > 1) return;
    if (warp == 0) {
      RotateHead(shared.sin, shared.cos, Half(), lane, shared.key);
      __syncwarp();
    }
    if (lane >= kDim / 8) return;
    const float* x = (warp == 0 ? shared.key : shared.value) + 8 * lane;
    const uint4 packed = make_uint4(PackBF16(x[0], x[1]), PackBF16(x[2], x[3]),
                                    PackBF16(x[4], x[5]), PackBF16(x[6], x[7]));
    (warp == 0 ? shared.new_key : shared.new_value)[lane] = packed;
    if (blockIdx.y % static_cast<unsigned>(attention.config.head_tiles) != 0) {
      return;
    }
    const KvView& cache = attention.ops.append.cache;
    const int64_t to =
        pages.Offset(cache, page, piece.position, piece.kv_head) / 8 + lane;
    static_cast<uint4*>(warp == 0 ? cache.k : cache.v)[to] = packed;
  }

  /// The head's query to its parts.
  __device__ void PartQuery() {
    float4 a, b;
    DecodeQuery<kDim>& query = shared.query[warp];
    if (lane < kDim / 8) {
      a = *reinterpret_cast<const float4*>(query.x + 8 * lane);
      b = *reinterpret_cast<const float4*>(query.x + 8 * lane + 4);
    }
    __syncwarp();
    if (lane >= kDim / 8) return;
    const BF16Parts p[4] = {SplitBF16(a.x, a.y), SplitBF16(a.z, a.w),
                            SplitBF16(b.x, b.y), SplitBF16(b.z, b.w)};
    uint4(&to)[3][4] = query.parts[lane / 4];
    const int t = lane % 4;
    to[0][t] = make_uint4(p[0].high, p[0].middle, p[1].high, p[1].middle);
    to[1][t] = make_uint4(p[2].high, p[2].middle, p[3].high, p[3].middle);
    to[2][t] = make_uint4(p[0].low, p[2].low, p[1].low, p[3].low);
  }

  /// The sigmoids of the gates; a lane has the elements that it copied.
  __device__ void MakeGates(const SplitPiece& piece) {
    if (piece.splits.count != 1) return;
    EachGate([&](int i) {
#pragma unroll 1
      for (int e = 4 * lane; e < kDim; e += 4 * kWarpSize) {
        float4& gate = *reinterpret_cast<float4*>(shared.gate[i] + e);
        gate = make_float4(Sigmoid(gate.x), Sigmoid(gate.y), Sigmoid(gate.z),
                           Sigmoid(gate.w));
      }
    });
  }
};

}  // namespace signet::backend::gpu
