// The part of the chunked delta rule that needs the state: a block walks
// kDeltaColumns columns of a value head through the chunks of a segment. With
// the names of delta_chunked.cpp and T = (I + L)^-1, on tensor cores:
//   Y = beta (V - exp(G) K S)      X = T Y      O = exp(G) Q S + A X
//   S <- exp(G_C) S + K^T (exp(G_C - G) X)
// Four warps, one a tile of tokens, make Y and O; four others hold the state,
// in f32 registers, and make exp(G) Q S meanwhile; all make X. What a product
// reads of the state, of Y and of X is split anew, each time by the power of
// two that its largest element asks for. The next chunk is copied meanwhile.

#include "backend/gpu/sm80_delta_chunk.cuh"
#include "backend/gpu/sm90_bulk.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kTokenWarps = kTiles;
constexpr int kStateWarps = 4;
constexpr int kThreads = (kTokenWarps + kStateWarps) * kWarpSize;
constexpr int kStateTiles = kKeyDim / kTile / kStateWarps;  // of a warp
constexpr int kColumnTiles = kDeltaColumns / 8;             // of 8 columns
constexpr int kHalfTiles = kColumnTiles / 2;
constexpr int kStages = 2;
static_assert(kTokenWarps == kStateWarps);

struct Stage {
  ChunkKeys keys;
  ChunkHead head;
};
using ChunkColumns = SplitMatrix<kChunk, kColumnUnits>;

struct Shared {
  Stage stages[kStages];
  SplitMatrix<kKeyDim, kColumnUnits> state;
  ChunkColumns y;
  ChunkColumns x;
  ChunkColumns rest_x;  // exp(G_C - G) X
  // exp(G) Q S of a tile of tokens, as the lanes of its warps hold it.
  float of_queries[kTokenWarps][4 * kColumnTiles][kWarpSize];
  BulkCopies copies[kStages];
  uint32_t most_state[kStateWarps];
  uint32_t most_y[kTokenWarps];
};

static_assert(sizeof(Shared) <= 227 << 10);

// An element of T is at most 1, so that X is within 64 times Y: what Y's scale
// is multiplied by for X, twice as safe.
constexpr float kScaleOfX = 1.0f / (2 * kChunk);

using Wide = Columns<kColumnTiles>;

// What all warps know of a block's walk.
class Walk {
 public:
  __device__ Walk(const DeltaRuleArgs& args, const ChunkSegment& segment,
                  Shared& shared)
      : args_(args),
        segment_(segment),
        shared_(shared),
        lane_(threadIdx.x % kWarpSize),
        head_(blockIdx.y),
        key_head_(head_ / (args.value_heads / args.key_heads)),
        live_(*args.rows.live),
        chunks_(min(segment.count,
                    (live_ + kChunk - 1) / kChunk - segment.first)) {}

  __device__ bool empty() const { return chunks_ <= 0; }

 protected:
  __device__ const Stage& StageOf(int64_t c) const {
    return shared_.stages[c % kStages];
  }
  __device__ void AwaitCopy(int64_t c) {
    shared_.copies[c % kStages].Await(c / kStages % 2 != 0);
    __syncwarp();
  }
  // The thread's first column, of the head.
  __device__ int64_t Column() const {
    return int64_t{blockIdx.x} * kDeltaColumns + lane_ % 4 * 2;
  }

  // Row `row` of tiles of a triangle, which may be loaded before what it is
  // multiplied by is there.
  struct TriangleTiles {
    SplitTile at[kTiles];

    __device__ TriangleTiles(const Triangle& from, int row, int lane) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        if (t <= row) at[t] = LeftTile(from, TriangleRow(row, t), 0, lane);
      }
    }
  };
  // A triangle's row times kCount times 8 columns of `right` from `first` on:
  // of 16 columns all loads before the first product.
  template <int kCount>
  __device__ SplitSum<kCount> Multiply(const TriangleTiles& left, int row,
                                       const ChunkColumns& right,
                                       int first) const {
    SplitSum<kCount> sum;
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      SplitTile tiles[kTiles];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        if (t > row) continue;
        tiles[t] = RightTurned(right, kTile * t, first + 8 * i, lane_);
      }
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        if (t <= row) sum.Add(i, left.at[t], tiles[t]);
      }
    }
    return sum;
  }

  // exp(G) K S or exp(G) Q S of tile `tile` of tokens.
  __device__ Wide TakeState(const Stage& stage,
                            const SplitMatrix<kChunk, kKeyUnits>& rows,
                            int tile) const {
    SplitSum<kColumnTiles> sum;
#pragma unroll 4
    for (int at = 0; at < kKeyDim; at += kTile) {
      const SplitTile left = LeftTile(rows, kTile * tile, at, lane_);
#pragma unroll
      for (int t = 0; t < kColumnTiles; t += 2) {
        sum.Add(t, left, RightTurned(shared_.state, at, 8 * t, lane_));
      }
    }
    const Scale scale = ScaleOf(MostOf(shared_.most_state));
    const float down = __fmul_rn(scale.down, 1 / kKeyScale);
    Wide taken;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float decay =
          stage.head.decay[kTile * tile + lane_ / 4 + e / 2 * 8];
#pragma unroll
      for (int t = 0; t < kColumnTiles; ++t) {
        taken.at[t][e] = __fmul_rn(decay, __fmul_rn(sum.Get(t, e), down));
      }
    }
    return taken;
  }

  // X of tile `tile` and half `half` of the columns, once all have made Y.
  __device__ void MakeX(const Stage& stage, int tile, int half) {
    const TriangleTiles inverse(stage.head.inverse, tile, lane_);
    __syncthreads();
    const auto sum =
        Multiply<kHalfTiles>(inverse, tile, shared_.y, kTile * half);
    Columns<kHalfTiles> x;
#pragma unroll
    for (int t = 0; t < kHalfTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        x.at[t][e] = __fmul_rn(sum.Get(t, e), kScaleOfX / kTriangleScale);
      }
    }
    const int unit = kHalfTiles * half;
    const float* rest = stage.head.rest + kTile * tile + lane_ / 4;
    x.Split(shared_.x, kTile * tile, unit, lane_, 1, 1);
    x.Split(shared_.rest_x, kTile * tile, unit, lane_, rest[0], rest[8]);
  }

  const DeltaRuleArgs& args_;
  const ChunkSegment& segment_;
  Shared& shared_;
  const int lane_;
  const int64_t head_;
  const int64_t key_head_;
  const int64_t live_;
  const int64_t chunks_;
};

// Both kinds of warps meet five times a chunk: when the largest of the state is
// known and when the state is split, the same of Y, and when X is there.
class TokenWalk : public Walk {
 public:
  __device__ TokenWalk(const Walk& walk, int tile) : Walk(walk), tile_(tile) {}

  __device__ void Run() {
    if (threadIdx.x == 0) {
      for (BulkCopies& copies : shared_.copies) copies.Open();
      BulkCopies::SeeEarlierWrites();
      StartCopy(0);
      StartCopy(1);
    }
    for (int64_t c = 0; c < chunks_; ++c) {
      const Stage& stage = StageOf(c);
      const int64_t first = (segment_.first + c) * kChunk;
      const Wide v = Values(first);
      __syncthreads();  // for the largest of the state
      __syncthreads();
      // The chunk before is done with, and with it the other stage.
      if (threadIdx.x == 0 && c > 0) StartCopy(c + 1);
      AwaitCopy(c);
      Wide y = TakeState(stage, stage.keys.k, tile_);
      MakeY(stage, v, y);
      const float down = ShareY(y);
      MakeX(stage, tile_, 0);
      WriteOut(stage, first, down);
    }
  }

 private:
  // By one thread. Nothing past the last chunk.
  __device__ void StartCopy(int64_t c) {
    static_assert(kStages == 2);
    if (c >= chunks_) return;
    Stage& stage = shared_.stages[c % kStages];
    BulkCopies& copies = shared_.copies[c % kStages];
    copies.Expect(sizeof(Stage));
    copies.Start(&stage.keys, segment_.keys + c * args_.key_heads + key_head_,
                 sizeof(ChunkKeys));
    copies.Start(&stage.head, segment_.heads + c * args_.value_heads + head_,
                 sizeof(ChunkHead));
  }

  // The thread's tokens of its tile, in the chunk: rows g and g + 8.
  __device__ int Token(int half) const {
    return kTile * tile_ + lane_ / 4 + half * 8;
  }

  // V of the tile; zeros past the live rows.
  __device__ Wide Values(int64_t first) const {
    const int64_t keys = 2 * args_.key_heads * kKeyDim;
    const int64_t width = keys + args_.value_heads * args_.value_dim;
    Wide v;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row = first + Token(half);
      const float* from =
          args_.qkv + row * width + keys + head_ * args_.value_dim + Column();
#pragma unroll
      for (int t = 0; t < kColumnTiles; ++t) {
        float2 x = {0, 0};
        if (row < live_) x = *reinterpret_cast<const float2*>(from + 8 * t);
        v.at[t][2 * half] = x.x;
        v.at[t][2 * half + 1] = x.y;
      }
    }
    return v;
  }

  // Turns exp(G) K S into Y.
  __device__ void MakeY(const Stage& stage, const Wide& v, Wide& y) const {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float beta = stage.head.beta[Token(e / 2)];
#pragma unroll
      for (int t = 0; t < kColumnTiles; ++t) {
        y.at[t][e] = __fmul_rn(beta, __fadd_rn(v.at[t][e], -y.at[t][e]));
      }
    }
  }

  // Splits Y for all warps and returns the inverse of its scale.
  __device__ float ShareY(const Wide& y) {
    const uint32_t most = y.MostOfWarp();
    if (lane_ == 0) shared_.most_y[tile_] = most;
    __syncthreads();
    const Scale scale = ScaleOf(MostOf(shared_.most_y));
    y.Split(shared_.y, kTile * tile_, 0, lane_, scale.up, scale.up);
    return scale.down;
  }

  // O of the tile, once all have made X.
  __device__ void WriteOut(const Stage& stage, int64_t first,
                           float down) const {
    const TriangleTiles attention(stage.head.attention, tile_, lane_);
    __syncthreads();
    const auto sum = Multiply<kColumnTiles>(attention, tile_, shared_.x, 0);
    const float unscale = __fmul_rn(down, 1 / (kScaleOfX * kTriangleScale));
    const auto of_queries = [&](int t, int e) {
      return shared_.of_queries[tile_][4 * t + e][lane_];
    };
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row = first + Token(half);
      if (row >= live_) continue;
      float* out = args_.out +
                   (row * args_.value_heads + head_) * args_.value_dim +
                   Column();
#pragma unroll
      for (int t = 0; t < kColumnTiles; ++t) {
        const int e = 2 * half;
        *reinterpret_cast<float2*>(out + 8 * t) = {
            __fmaf_rn(sum.Get(t, e), unscale, of_queries(t, e)),
            __fmaf_rn(sum.Get(t, e + 1), unscale, of_queries(t, e + 1))};
      }
    }
  }

  const int tile_;
};

class StateWalk : public Walk {
 public:
  __device__ StateWalk(const Walk& walk, int warp) : Walk(walk), warp_(warp) {}

  __device__ void Run() {
    LoadState();
    for (int64_t c = 0; c < chunks_; ++c) {
      const Stage& stage = StageOf(c);
      ShareState();
      __syncthreads();
      AwaitCopy(c);
      ShareQueries(stage);
      __syncthreads();  // for the largest of Y
      // A short and a long row of tiles for the two warps of a scheduler.
      MakeX(stage, kTiles - 1 - warp_, 1);
      __syncthreads();
      UpdateState(stage);
    }
    StoreState();
  }

 private:
  // The thread's element (g, 2 q) of the warp's tile `tile` of keys.
  __device__ float* State(int tile) const {
    const int64_t row =
        (args_.rows.slot[0] * args_.value_heads + head_) * kKeyDim + Key(tile) +
        lane_ / 4;
    return args_.state + row * args_.value_dim + Column();
  }
  __device__ int Key(int tile) const {
    return (kStateTiles * warp_ + tile) * kTile;
  }

  __device__ void LoadState() {
    const bool from_start = segment_.first == 0 && args_.rows.position[0] == 0;
#pragma unroll
    for (int i = 0; i < kStateTiles * kColumnTiles * 2; ++i) {
      const int tile = i / (2 * kColumnTiles);
      const int t = i / 2 % kColumnTiles;
      const int half = i % 2;
      float2 x = {0, 0};
      if (!from_start) {
        x = *reinterpret_cast<const float2*>(
            State(tile) + half * 8 * args_.value_dim + 8 * t);
      }
      state_[tile].at[t][2 * half] = x.x;
      state_[tile].at[t][2 * half + 1] = x.y;
    }
  }
  __device__ void StoreState() const {
#pragma unroll
    for (int i = 0; i < kStateTiles * kColumnTiles * 2; ++i) {
      const int tile = i / (2 * kColumnTiles);
      const int t = i / 2 % kColumnTiles;
      const int half = i % 2;
      *reinterpret_cast<float2*>(State(tile) + half * 8 * args_.value_dim +
                                 8 * t) = {state_[tile].at[t][2 * half],
                                           state_[tile].at[t][2 * half + 1]};
    }
  }

  // Splits the state for the token warps.
  __device__ void ShareState() {
    uint32_t most = 0;
#pragma unroll
    for (const Wide& tile : state_) most = max(most, tile.MostOfWarp());
    if (lane_ == 0) shared_.most_state[warp_] = most;
    __syncthreads();
    const float up = ScaleOf(MostOf(shared_.most_state)).up;
#pragma unroll
    for (int tile = 0; tile < kStateTiles; ++tile) {
      state_[tile].Split(shared_.state, Key(tile), 0, lane_, up, up);
    }
  }

  // For the token warp of tile warp_.
  __device__ void ShareQueries(const Stage& stage) const {
    const Wide taken = TakeState(stage, stage.keys.q, warp_);
#pragma unroll
    for (int t = 0; t < kColumnTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        shared_.of_queries[warp_][4 * t + e][lane_] = taken.at[t][e];
      }
    }
  }

  __device__ void UpdateState(const Stage& stage) {
    SplitSum<kColumnTiles> sums[kStateTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      SplitTile x[kHalfTiles];
#pragma unroll
      for (int i = 0; i < kHalfTiles; ++i) {
        x[i] = RightTurned(shared_.rest_x, kTile * t, kTile * i, lane_);
      }
#pragma unroll
      for (int tile = 0; tile < kStateTiles; ++tile) {
        const SplitTile k =
            LeftTurned(stage.keys.k, kTile * t, Key(tile), lane_);
#pragma unroll
        for (int i = 0; i < kHalfTiles; ++i) sums[tile].Add(2 * i, k, x[i]);
      }
    }
    const float down = ScaleOf(MostOf(shared_.most_y)).down;
    const float unscale = __fmul_rn(down, 1 / (kScaleOfX * kKeyScale));
    const float decay = stage.head.decay[kChunk - 1];
#pragma unroll
    for (int i = 0; i < kStateTiles * kColumnTiles; ++i) {
      const int tile = i / kColumnTiles;
      const int t = i % kColumnTiles;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& s = state_[tile].at[t][e];
        s = __fmaf_rn(decay, s, __fmul_rn(sums[tile].Get(t, e), unscale));
      }
    }
  }

  const int warp_;  // of the state warps
  Wide state_[kStateTiles];
};

// Grid: slice, value head.
__global__ void __launch_bounds__(kThreads, 1)
    WalkKernel(const DeltaRuleArgs args, const ChunkSegment segment) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int warp = threadIdx.x / kWarpSize;
  DependencyWait();
  const Walk walk(args, segment, *reinterpret_cast<Shared*>(memory));
  if (walk.empty()) return;
  if (warp < kTokenWarps) {
    TokenWalk(walk, warp).Run();
  } else {
    StateWalk(walk, warp - kTokenWarps).Run();
  }
}

}  // namespace

Status WalkChunks(Stream stream, const DeltaRuleArgs& args,
                  const ChunkSegment& segment, int64_t slices) {
  constexpr int kBytes = sizeof(Shared);
  const Status status = AllowSharedMemory(WalkKernel, kBytes);
  if (status != kOk) return status;
  const dim3 grid(static_cast<unsigned>(slices),
                  static_cast<unsigned>(args.value_heads));
  return Launch(WalkKernel, grid, kThreads, kBytes, stream, args, segment);
}

}  // namespace signet::backend::gpu
