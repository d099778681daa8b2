// The gated delta rule over many rows of one sequence, token by token, heads of
// 128 keys. A block owns kDeltaColumns columns of a head: four warps take the
// tokens into a state held in registers, four others load and normalise the
// next tokens meanwhile. A sum over the keys stays within eight lanes of a
// warp, so that the block meets once a tile of tokens. Every token is worked
// alike wherever it stands in a tile or a call: bits do not depend on how a
// sequence is cut. (Other bits than those of StepColumn, whose sums run in
// another order.)

#include "backend/gpu/delta.cuh"
#include "backend/gpu/stored_bits.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kKeyDim = 128;
constexpr int kTileTokens = 16;
constexpr int kStateWarps = 4;
constexpr int kLoadWarps = 4;
constexpr int kThreads = (kStateWarps + kLoadWarps) * kWarpSize;
// Of a state warp: lanes that share a column, and rows and columns of a lane.
constexpr int kKeyLanes = 8;
constexpr int kQuads = kKeyDim / kKeyLanes / 4;
constexpr int kLaneColumns = 2;
constexpr int kWarpColumns = kWarpSize / kKeyLanes * kLaneColumns;
static_assert(kKeyDim == kWarpValues);
static_assert(kStateWarps * kWarpColumns == kDeltaColumns);

// Tokens ready for the recurrence.
struct Tokens {
  alignas(16) float q[kTileTokens][kKeyDim];
  alignas(16) float k[kTileTokens][kKeyDim];
  alignas(16) float v[kTileTokens][kDeltaColumns];
  DeltaGate gate[kTileTokens];
  float qk[kTileTokens];
};

struct Place {
  int64_t head;
  int64_t key_head;
  int64_t column;  // first of the block, in the head
};

__device__ inline float4 Load4(const float* x) {
  return *reinterpret_cast<const float4*>(x);
}
__device__ inline float4 Scaled(float4 x, float factor) {
  return {__fmul_rn(x.x, factor), __fmul_rn(x.y, factor),
          __fmul_rn(x.z, factor), __fmul_rn(x.w, factor)};
}

// Fills `tokens` with `count` rows from `first`; `warp` of the kLoadWarps.
__device__ inline void LoadTokens(const DeltaRuleArgs& args, const Place& place,
                                  float a_log, float dt_bias, int64_t first,
                                  int count, int warp, int lane,
                                  Tokens& tokens) {
  constexpr int kEach = kTileTokens / kLoadWarps;
  const int64_t values = args.value_heads * args.value_dim;
  const int64_t width = 2 * args.key_heads * kKeyDim + values;
  float4 q[kEach];
  float4 k[kEach];
  float v[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int t = warp + i * kLoadWarps;
    if (t >= count) break;
    const float* qkv = args.qkv + (first + t) * width;
    q[i] = Load4(qkv + place.key_head * kKeyDim + 4 * lane);
    k[i] = Load4(qkv + (args.key_heads + place.key_head) * kKeyDim + 4 * lane);
    v[i] = qkv[2 * args.key_heads * kKeyDim + place.head * args.value_dim +
               place.column + lane];
  }
  if (warp == 0 && lane < count) {
    const int64_t at = (first + lane) * args.value_heads + place.head;
    tokens.gate[lane] = GateOf(args.b[at], args.a[at], a_log, dt_bias);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int t = warp + i * kLoadWarps;
    if (t >= count) break;
    const KeyFactors factors = FactorsOf(
        WarpSum(Dot4(q[i], q[i], 0.0f)), WarpSum(Dot4(k[i], k[i], 0.0f)),
        WarpSum(Dot4(q[i], k[i], 0.0f)), static_cast<float>(kKeyDim));
    *reinterpret_cast<float4*>(&tokens.q[t][4 * lane]) =
        Scaled(q[i], factors.q);
    *reinterpret_cast<float4*>(&tokens.k[t][4 * lane]) =
        Scaled(k[i], factors.k);
    tokens.v[t][lane] = v[i];
    if (lane == 0) tokens.qk[t] = factors.qk;
  }
}

// One lane's part of the state: rows 32 i + 4 key_lane + j of kLaneColumns
// columns, at [4 i + j].
struct LaneState {
  float s[4 * kQuads][kLaneColumns];
};

// A lane's rows of a vector of keys.
struct LaneKeys {
  float4 quad[kQuads];

  __device__ void Load(const float* vector, int key_lane) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      quad[i] = Load4(vector + 4 * kKeyLanes * i + 4 * key_lane);
    }
  }
  __device__ float operator[](int i) const {
    const float4 x = quad[i / 4];
    return i % 4 == 0 ? x.x : i % 4 == 1 ? x.y : i % 4 == 2 ? x.z : x.w;
  }
};

// A warp's walk through the tokens of a tile.
class Walk {
 public:
  __device__ Walk(const Tokens& tokens, int warp, int lane)
      : tokens_(tokens),
        key_lane_(lane % kKeyLanes),
        group_(lane - lane % kKeyLanes),
        takes_q_((lane & 1) != 0),
        second_((lane & 2) != 0),
        writes_((lane & 5) == 1),
        column_(warp * kWarpColumns + group_ / kKeyLanes * kLaneColumns +
                (second_ ? 1 : 0)) {}

  __device__ int column() const { return column_; }
  // Takes `count` tokens into `state`; the output of token t goes to
  // out[t * stride], the lane's column of it.
  __device__ void Run(int count, LaneState& state, float* out, int64_t stride) {
    LaneKeys even;
    LaneKeys odd;
    q_.Load(tokens_.q[0], key_lane_);
    even.Load(tokens_.k[0], key_lane_);
    for (int t = 0; t < count; t += 2) {
      Step(t, even, odd, state, out + t * stride);
      if (t + 1 == count) break;
      Step(t + 1, odd, even, state, out + (t + 1) * stride);
    }
  }

 private:
  // Token t, with its key in `k`; leaves the next one's in `next`.
  __device__ void Step(int t, const LaneKeys& k, LaneKeys& next,
                       LaneState& state, float* out) {
    const DeltaGate gate = tokens_.gate[t];
    const float qk = tokens_.qk[t];
    const float v = tokens_.v[t][column_];
    float sk[kLaneColumns] = {};
    float sq[kLaneColumns] = {};
#pragma unroll
    for (int i = 0; i < 4 * kQuads; ++i) {
#pragma unroll
      for (int c = 0; c < kLaneColumns; ++c) {
        sk[c] = __fmaf_rn(k[i], state.s[i][c], sk[c]);
        sq[c] = __fmaf_rn(q_[i], state.s[i][c], sq[c]);
      }
    }
    const int after = min(t + 1, kTileTokens - 1);
    q_.Load(tokens_.q[after], key_lane_);
    next.Load(tokens_.k[after], key_lane_);
    const float sum = Reduce(sk, sq);
#pragma unroll
    for (int i = 0; i < 4 * kQuads; ++i) {
#pragma unroll
      for (int c = 0; c < kLaneColumns; ++c) {
        state.s[i][c] = __fmul_rn(gate.decay, state.s[i][c]);
      }
    }
    // Right in the lanes that hold S^T k, which the others ask.
    const float mine = DeltaOf(gate, v, sum);
    float delta[kLaneColumns];
#pragma unroll
    for (int c = 0; c < kLaneColumns; ++c) {
      delta[c] = __shfl_sync(~0u, mine, group_ + 2 * c);
    }
#pragma unroll
    for (int i = 0; i < 4 * kQuads; ++i) {
#pragma unroll
      for (int c = 0; c < kLaneColumns; ++c) {
        state.s[i][c] = __fmaf_rn(k[i], delta[c], state.s[i][c]);
      }
    }
    if (writes_) *out = OutputOf(gate, qk, second_ ? delta[1] : delta[0], sum);
  }

  // The sums over the eight lanes of a column pair, one to each lane: bit 0 of
  // the lane tells S^T q from S^T k, bit 1 the column.
  __device__ float Reduce(const float (&sk)[kLaneColumns],
                          const float (&sq)[kLaneColumns]) const {
    static_assert(kLaneColumns == 2 && kKeyLanes == 8);
    const float first =
        Swap(takes_q_ ? sq[0] : sk[0], takes_q_ ? sk[0] : sq[0], 1);
    const float second =
        Swap(takes_q_ ? sq[1] : sk[1], takes_q_ ? sk[1] : sq[1], 1);
    const float sum =
        Swap(second_ ? second : first, second_ ? first : second, 2);
    return Swap(sum, sum, 4);
  }
  // What this lane keeps plus what the lane at `distance` gives it.
  static __device__ float Swap(float keep, float give, int distance) {
    return __fadd_rn(keep, __shfl_xor_sync(~0u, give, distance));
  }

  const Tokens& tokens_;
  const int key_lane_;
  const int group_;  // first lane of the column pair
  const bool takes_q_;
  const bool second_;
  const bool writes_;

  const int column_;  // the lane's own, in the slice
  LaneKeys q_;
};

// Grid: slice, value head.
__global__ void __launch_bounds__(kThreads, 2)
    StreamSequence(const DeltaRuleArgs args) {
  __shared__ Tokens tiles[2];

  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  Place place;
  place.head = blockIdx.y;
  place.key_head = place.head / (args.value_heads / args.key_heads);
  place.column = int64_t{blockIdx.x} * kDeltaColumns;
  const float a_log =
      FromBits(LoadBits(args.a_log, place.head), args.a_log.dtype);
  const float dt_bias =
      FromBits(LoadBits(args.dt_bias, place.head), args.dt_bias.dtype);
  DependencyWait();
  const int64_t live = *args.rows.live;
  if (live <= 0) return;
  const auto count_at = [&](int64_t first) {
    return static_cast<int>(min(int64_t{kTileTokens}, live - first));
  };

  if (warp >= kStateWarps) {
    for (int64_t first = 0, tile = 0; first < live;
         first += kTileTokens, ++tile) {
      LoadTokens(args, place, a_log, dt_bias, first, count_at(first),
                 warp - kStateWarps, lane, tiles[tile % 2]);
      // The tile is full, and the other one free.
      __syncthreads();
    }
    return;
  }

  const int64_t dv = args.value_dim;
  const int key_lane = lane % kKeyLanes;
  const int64_t column =
      place.column + warp * kWarpColumns + lane / kKeyLanes * kLaneColumns;
  float* base =
      args.state +
      (args.rows.slot[0] * args.value_heads + place.head) * kKeyDim * dv +
      column;
  const auto at = [&](int i) {
    const int row = i / 4 * 4 * kKeyLanes + 4 * key_lane + i % 4;
    return reinterpret_cast<float2*>(base + row * dv);
  };
  LaneState state;
  const bool from_start = args.rows.position[0] == 0;
#pragma unroll
  for (int i = 0; i < 4 * kQuads; ++i) {
    const float2 x = from_start ? float2{0, 0} : *at(i);
    state.s[i][0] = x.x;
    state.s[i][1] = x.y;
  }
  for (int64_t first = 0, tile = 0; first < live;
       first += kTileTokens, ++tile) {
    __syncthreads();
    Walk walk(tiles[tile % 2], warp, lane);
    float* out = args.out + (first * args.value_heads + place.head) * dv +
                 place.column + walk.column();
    walk.Run(count_at(first), state, out, args.value_heads * dv);
  }
#pragma unroll
  for (int i = 0; i < 4 * kQuads; ++i) {
    *at(i) = {state.s[i][0], state.s[i][1]};
  }
}

}  // namespace

Status StreamDelta(Stream stream, const DeltaRuleArgs& args, int64_t slices) {
  const dim3 grid(static_cast<unsigned>(slices),
                  static_cast<unsigned>(args.value_heads));
  return Launch(StreamSequence, grid, kThreads, 0, stream, args);
}

}  // namespace signet::backend::gpu
