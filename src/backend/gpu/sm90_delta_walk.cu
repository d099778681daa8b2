// The part of the chunked delta rule that needs the state: a block walks
// kDeltaColumns columns of a value head through the chunks of a segment. With
// the names of delta_chunked.cpp and T = (I + L)^-1, on tensor cores:
//   Y = beta (V - exp(G) K S)      X = T Y      O = exp(G) Q S + A X
//   S <- exp(G_C) S + K^T (exp(G_C - G) X)
// Four warps, one a tile of tokens, make Y and O; four others hold the state,
// in f32 registers, make X and take it into the state. What a product reads of
// the state, of Y and of X is split anew, each time by the power of two that
// its largest element asks for. The next chunk is copied meanwhile.

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
// A row of values in shared memory, padded so that four rows differ in banks.
constexpr int kValuePitch = kDeltaColumns + 8;
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
  ChunkColumns rest_x;                            // exp(G_C - G) X
  alignas(16) float values[kChunk][kValuePitch];  // V
  BulkCopies copies[kStages];
  Barrier most_known;  // the largest of the state, among the state's warps
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
        head_(static_cast<int>(blockIdx.y)),
        live_(*args.rows.live),
        chunks_(min(
            static_cast<int>(segment.count),
            (live_ + kChunk - 1) / kChunk - static_cast<int>(segment.first))) {}

  __device__ bool empty() const { return chunks_ <= 0; }

 protected:
  // Addresses made of the lane are made anew from here on: the compiler would
  // keep those of all loads of a chunk in registers, and there are too many.
  __device__ void ForgetAddresses() { asm volatile("" : "+r"(lane_)); }
  __device__ const Stage& StageOf(int c) const {
    return shared_.stages[c % kStages];
  }
  __device__ void AwaitCopy(int c) {
    shared_.copies[c % kStages].Await(c / kStages % 2 != 0);
    __syncwarp();
  }
  // The thread's first column, of the head.
  __device__ int64_t Column() const {
    return int64_t{blockIdx.x} * kDeltaColumns + lane_ % 4 * 2;
  }

  // Row `row`, kLeast <= row <= kMost, of tiles of a triangle, which may be
  // loaded before what it is multiplied by is there.
  template <int kLeast, int kMost>
  struct TriangleTiles {
    SplitTile at[kMost + 1];

    __device__ TriangleTiles(const Triangle& from, int row, int lane) {
#pragma unroll
      for (int t = 0; t <= kMost; ++t) {
        if (Has(t, row)) at[t] = LeftTile(from, TriangleRow(row, t), 0, lane);
      }
    }
    static __device__ bool Has(int t, int row) {
      return t <= kLeast || (t <= kMost && t <= row);
    }
  };

  const DeltaRuleArgs& args_;
  const ChunkSegment& segment_;
  Shared& shared_;
  int lane_;
  const int head_;
  const int live_;
  const int chunks_;
};

// Both kinds of warps meet four times a chunk: when the state is split, when
// the largest of Y is known, when Y is split, and when X is there. Nothing
// waits for O: Q S is made while the others make X, and A X while they take X
// into the state.
class TokenWalk : public Walk {
 public:
  __device__ TokenWalk(const Walk& walk, int tile) : Walk(walk), tile_(tile) {}

  __device__ void Run() {
    for (int c = 0; c < chunks_; ++c) {
      const Stage& stage = StageOf(c);
      const int first = (static_cast<int>(segment_.first) + c) * kChunk;
      ForgetAddresses();
      AwaitCopy(c);
      SplitTile keys[kKeyTiles];
#pragma unroll
      for (int i = 0; i < kKeyTiles; ++i) {
        keys[i] = LeftTile(stage.keys.k, kTile * tile_, kTile * i, lane_);
      }
      const float2 beta = OfTokens(stage.head.beta);
      const float2 decay = OfTokens(stage.head.decay);
      ForgetAddresses();
      __syncthreads();
      StateTiles state;
      Wide y = TakeState(keys, decay, state);
      MakeY(beta, y);
      const float unscale_state = UnscaleOfState();
      const float down = ShareY(y);
      __syncthreads();
      ForgetAddresses();
      const Sum of_state = ReadState(stage, state);
      WriteOut(stage, first, down, Decayed(of_state, decay, unscale_state));
    }
  }

 private:
  static constexpr int kKeyTiles = kKeyDim / kTile;
  using AnyRow = TriangleTiles<0, kTiles - 1>;
  using Sum = SplitSum<kColumnTiles>;
  // The split state: read from shared memory once, for K S, and kept for Q S.
  struct StateTiles {
    SplitTile at[kKeyTiles][kHalfTiles];
  };

  // The thread's tokens of its tile, in the chunk: rows g and g + 8.
  __device__ int Token(int half) const {
    return kTile * tile_ + lane_ / 4 + half * 8;
  }

  // Of a value a token, those of the thread's tokens.
  __device__ float2 OfTokens(const float (&list)[kChunk]) const {
    return {list[Token(0)], list[Token(1)]};
  }
  __device__ float UnscaleOfState() const {
    return __fmul_rn(ScaleOf(MostOf(shared_.most_state)).down, 1 / kKeyScale);
  }
  // exp(G) times the product of the tile's keys or queries and the state.
  __device__ Wide Decayed(const Sum& product, float2 decay,
                          float unscale) const {
    Wide to;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float of_token = e < 2 ? decay.x : decay.y;
#pragma unroll
      for (int t = 0; t < kColumnTiles; ++t) {
        to.at[t][e] =
            __fmul_rn(of_token, __fmul_rn(product.Get(t, e), unscale));
      }
    }
    return to;
  }
  // exp(G) K S of the tile, and S itself.
  __device__ Wide TakeState(const SplitTile (&keys)[kKeyTiles], float2 decay,
                            StateTiles& state) const {
    Sum sum;
#pragma unroll
    for (int i = 0; i < kKeyTiles; ++i) {
#pragma unroll
      for (int t = 0; t < kHalfTiles; ++t) {
        state.at[i][t] =
            RightTurned(shared_.state, kTile * i, kTile * t, lane_);
        sum.Add(2 * t, keys[i], state.at[i][t]);
      }
    }
    return Decayed(sum, decay, UnscaleOfState());
  }
  // Q S of the tile.
  __device__ Sum ReadState(const Stage& stage, const StateTiles& state) const {
    Sum sum;
#pragma unroll
    for (int i = 0; i < kKeyTiles; ++i) {
      const SplitTile q =
          LeftTile(stage.keys.q, kTile * tile_, kTile * i, lane_);
#pragma unroll
      for (int t = 0; t < kHalfTiles; ++t) sum.Add(2 * t, q, state.at[i][t]);
    }
    return sum;
  }

  // Turns exp(G) K S into Y.
  __device__ void MakeY(float2 beta, Wide& y) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float of_token = half == 0 ? beta.x : beta.y;
      const float* values = &shared_.values[Token(half)][lane_ % 4 * 2];
#pragma unroll
      for (int t = 0; t < kColumnTiles; ++t) {
        const float2 v = *reinterpret_cast<const float2*>(values + 8 * t);
        float* to = y.at[t] + 2 * half;
        to[0] = __fmul_rn(of_token, __fadd_rn(v.x, -to[0]));
        to[1] = __fmul_rn(of_token, __fadd_rn(v.y, -to[1]));
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

  // A triangle's row times `right`. A tile is loaded while the one before is
  // multiplied, right of the diagonal, too, where it is not used.
  __device__ Sum Multiply(const AnyRow& left, int row,
                          const ChunkColumns& right) const {
    SplitTile tiles[kTiles][kHalfTiles];
    const auto load = [&](int t) {
#pragma unroll
      for (int i = 0; i < kHalfTiles; ++i) {
        tiles[t][i] = RightTurned(right, kTile * t, kTile * i, lane_);
      }
    };
    Sum sum;
    load(0);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (t + 1 < kTiles) load(t + 1);
      if (t > row) continue;
#pragma unroll
      for (int i = 0; i < kHalfTiles; ++i) {
        sum.Add(2 * i, left.at[t], tiles[t][i]);
      }
    }
    return sum;
  }

  // O of the tile, from exp(G) Q S, once X is made.
  __device__ void WriteOut(const Stage& stage, int first, float down,
                           const Wide& o) const {
    const AnyRow attention(stage.head.attention, tile_, lane_);
    __syncthreads();
    const Sum sum = Multiply(attention, tile_, shared_.x);
    const float unscale = __fmul_rn(down, 1 / (kScaleOfX * kTriangleScale));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + Token(half);
      if (row >= live_) continue;
      float* out = args_.out +
                   (row * args_.value_heads + head_) * args_.value_dim +
                   Column();
#pragma unroll
      for (int t = 0; t < kColumnTiles; ++t) {
        const int e = 2 * half;
        *reinterpret_cast<float2*>(out + 8 * t) = {
            __fmaf_rn(sum.Get(t, e), unscale, o.at[t][e]),
            __fmaf_rn(sum.Get(t, e + 1), unscale, o.at[t][e + 1])};
      }
    }
  }

  const int tile_;
};

class StateWalk : public Walk {
 public:
  __device__ StateWalk(const Walk& walk, int warp) : Walk(walk), warp_(warp) {}

  __device__ void Run() {
    CopyValues(0);
    LoadState();
    for (int c = 0; c < chunks_; ++c) {
      const Stage& stage = StageOf(c);
      ForgetAddresses();
      ShareState(c);
      WaitCopyGroups<0>();
      __syncthreads();
      // The chunk before is done with, and with it the other stage.
      if (c > 0 && IsFirst()) StartCopy(c + 1);
      AwaitCopy(c);
      ForgetAddresses();
      const KeyTiles keys(stage, *this);
      __syncthreads();  // for the largest of Y
      CopyValues(c + 1);
      ForgetAddresses();
      MakeX(stage);
      __syncthreads();
      UpdateState(stage, keys);
    }
    StoreState();
  }
  // By one thread, before a barrier of the block.
  __device__ void Open() {
    for (BulkCopies& copies : shared_.copies) copies.Open();
    shared_.most_known.Open(kStateWarps);
    BulkCopies::SeeEarlierWrites();
    StartCopy(0);
    StartCopy(1);
  }
  __device__ bool IsFirst() const { return warp_ == 0 && lane_ == 0; }

 private:
  // By one thread. Nothing past the last chunk.
  __device__ void StartCopy(int c) {
    static_assert(kStages == 2);
    if (c >= chunks_) return;
    Stage& stage = shared_.stages[c % kStages];
    BulkCopies& copies = shared_.copies[c % kStages];
    copies.Expect(sizeof(Stage));
    const int key_head = head_ / (static_cast<int>(args_.value_heads) /
                                  static_cast<int>(args_.key_heads));
    copies.Start(&stage.keys, segment_.keys + c * args_.key_heads + key_head,
                 sizeof(ChunkKeys));
    copies.Start(&stage.head, segment_.heads + c * args_.value_heads + head_,
                 sizeof(ChunkHead));
  }

  // V of a chunk, by all threads of these warps; zeros past the live rows.
  __device__ void CopyValues(int c) {
    if (c >= chunks_) return;
    constexpr int kUnits = kDeltaColumns / 4;  // of a row, of 16 bytes
    constexpr int kRows = kStateWarps * kWarpSize / kUnits;
    const int thread = warp_ * kWarpSize + lane_;
    const int token = thread / kUnits;
    const int column = thread % kUnits * 4;
    const int first = (static_cast<int>(segment_.first) + c) * kChunk + token;
    const int64_t keys = 2 * args_.key_heads * kKeyDim;
    const int64_t width = keys + args_.value_heads * args_.value_dim;
    const float* from = args_.qkv + first * width + keys +
                        head_ * args_.value_dim +
                        int64_t{blockIdx.x} * kDeltaColumns + column;
#pragma unroll
    for (int i = 0; i < kChunk; i += kRows) {
      StartCopy16(SharedAddress(&shared_.values[token + i][column]),
                  from + i * width, first + i < live_);
    }
    EndCopyGroup();
  }

  // The thread's element (g, 2 q) of the warp's first tile of keys.
  __device__ float* State() const {
    const int64_t row =
        (args_.rows.slot[0] * args_.value_heads + head_) * kKeyDim + Key(0) +
        lane_ / 4;
    return args_.state + row * args_.value_dim + Column();
  }
  // Element (g + 8 half, 8 t + 2 q) of tile `tile` from there.
  __device__ int64_t Offset(int tile, int t, int half) const {
    return (kTile * tile + 8 * half) * args_.value_dim + 8 * t;
  }
  __device__ int Key(int tile) const {
    return (kStateTiles * warp_ + tile) * kTile;
  }
  // The keys of a chunk, turned, which may be loaded before X is there.
  struct KeyTiles {
    SplitTile at[kTiles][kStateTiles];

    __device__ KeyTiles(const Stage& stage, const StateWalk& walk) {
#pragma unroll
      for (int i = 0; i < kTiles * kStateTiles; ++i) {
        const int t = i / kStateTiles;
        const int tile = i % kStateTiles;
        at[t][tile] =
            LeftTurned(stage.keys.k, kTile * t, walk.Key(tile), walk.lane_);
      }
    }
  };

  __device__ void LoadState() {
    const bool from_start = segment_.first == 0 && args_.rows.position[0] == 0;
    const float* from = State();
#pragma unroll
    for (int i = 0; i < kStateTiles * kColumnTiles * 2; ++i) {
      const int tile = i / (2 * kColumnTiles);
      const int t = i / 2 % kColumnTiles;
      const int half = i % 2;
      float2 x = {0, 0};
      if (!from_start) {
        x = *reinterpret_cast<const float2*>(from + Offset(tile, t, half));
      }
      state_[tile].at[t][2 * half] = x.x;
      state_[tile].at[t][2 * half + 1] = x.y;
    }
  }
  __device__ void StoreState() const {
    float* to = State();
#pragma unroll
    for (int i = 0; i < kStateTiles * kColumnTiles * 2; ++i) {
      const int tile = i / (2 * kColumnTiles);
      const int t = i / 2 % kColumnTiles;
      const int half = i % 2;
      *reinterpret_cast<float2*>(to + Offset(tile, t, half)) = {
          state_[tile].at[t][2 * half], state_[tile].at[t][2 * half + 1]};
    }
  }

  // Splits the state of chunk `c` for the token warps.
  __device__ void ShareState(int c) {
    uint32_t most = 0;
#pragma unroll
    for (const Wide& tile : state_) most = max(most, tile.MostOfWarp());
    if (lane_ == 0) {
      shared_.most_state[warp_] = most;
      shared_.most_known.Arrive();
    }
    shared_.most_known.Await(c % 2 != 0 ? 1 : 0);
    __syncwarp();
    const float up = ScaleOf(MostOf(shared_.most_state)).up;
#pragma unroll
    for (int tile = 0; tile < kStateTiles; ++tile) {
      state_[tile].Split(shared_.state, Key(tile), 0, lane_, up, up);
    }
  }

  // X of two tiles of tokens, a short and a long row of tiles, and half of the
  // columns, once Y is made.
  __device__ void MakeX(const Stage& stage) {
    using ShortRow = TriangleTiles<0, 1>;
    using LongRow = TriangleTiles<2, 3>;
    static_assert(kTiles == 4 && kStateWarps == 4 && kHalfTiles == 2);
    const int above = warp_ / 2;
    const int below = kTiles - 1 - above;
    const int half = warp_ % 2;
    const ShortRow left_above(stage.head.inverse, above, lane_);
    const LongRow left_below(stage.head.inverse, below, lane_);
    const float2 rest_above = RestOf(stage, above);
    const float2 rest_below = RestOf(stage, below);
    __syncthreads();
    // Right of the diagonal, too, where it is not used.
    SplitTile y[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      y[t] = RightTurned(shared_.y, kTile * t, kTile * half, lane_);
    }
    SplitSum<kHalfTiles> of_above;
    SplitSum<kHalfTiles> of_below;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (LongRow::Has(t, below)) of_below.Add(0, left_below.at[t], y[t]);
      if (t < 2 && ShortRow::Has(t, above)) {
        of_above.Add(0, left_above.at[t], y[t]);
      }
    }
    ShareX(above, half, of_above, rest_above);
    ShareX(below, half, of_below, rest_below);
  }
  // exp(G_C - G) of the thread's tokens of a tile.
  __device__ float2 RestOf(const Stage& stage, int tile) const {
    const float* rest = stage.head.rest + kTile * tile + lane_ / 4;
    return {rest[0], rest[8]};
  }
  __device__ void ShareX(int tile, int half, const SplitSum<kHalfTiles>& sum,
                         float2 rest) {
    Columns<kHalfTiles> x;
#pragma unroll
    for (int t = 0; t < kHalfTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        x.at[t][e] = __fmul_rn(sum.Get(t, e), kScaleOfX / kTriangleScale);
      }
    }
    const int unit = kHalfTiles * half;
    x.Split(shared_.x, kTile * tile, unit, lane_, 1, 1);
    x.Split(shared_.rest_x, kTile * tile, unit, lane_, rest.x, rest.y);
  }

  __device__ void UpdateState(const Stage& stage, const KeyTiles& keys) {
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
#pragma unroll
        for (int i = 0; i < kHalfTiles; ++i) {
          sums[tile].Add(2 * i, keys.at[t][tile], x[i]);
        }
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
    __syncthreads();  // for what the state's first thread opens
    TokenWalk(walk, warp).Run();
  } else {
    StateWalk state(walk, warp - kTokenWarps);
    if (state.IsFirst()) state.Open();
    __syncthreads();
    state.Run();
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
