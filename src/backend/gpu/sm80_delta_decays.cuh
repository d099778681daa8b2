#pragma once
// The decays of a chunk of the delta rule, and what lies between any two of its
// tokens. Device code only.

#include <cstdint>

#include "backend/gpu/sm80_delta_chunk.cuh"
#include "backend/gpu/stored_bits.cuh"

namespace signet::backend::gpu {

/// What a chunk and a value head make of their gates; in shared memory. G is
/// the sum of log decays up to a token. exp(G_i - G_j) is kept for tiles on the
/// diagonal as it is, for others by the first token f of row i's tile, as
/// exp(G_i - G_f) exp(G_f - G_j): neither is above 1, and there are fewer.
struct HeadDecays {
  double log_decay[kChunk];  // G
  float beta[kChunk];
  float from_first[kChunk];
  float to_first[kTiles][kChunk];  // [tile of i][j]
  // Padded, so that rows differ in banks.
  float within[kTiles][kTile][kTile + 4];
};

/// What a warp reads of a chunk and a value head, two tokens a lane.
struct TokenGates {
  float b[2] = {};
  float a[2] = {};

  __device__ void Load(const DeltaRuleArgs& args, int64_t value_head,
                       int64_t first, int count, int lane) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int t = 2 * lane + i;
      if (t >= count) continue;
      const int64_t at = (first + t) * args.value_heads + value_head;
      b[i] = args.b[at];
      a[i] = args.a[at];
    }
  }
};

/// The gates of a chunk and a value head, by one warp. G is summed in double:
/// one decay may be e^-300 and its neighbours near 1.
__device__ inline void MakeDecays(const DeltaRuleArgs& args, int64_t value_head,
                                  const TokenGates& gates, int count, int lane,
                                  ChunkHead& to, HeadDecays& decays) {
  const float a_log =
      FromBits(LoadBits(args.a_log, value_head), args.a_log.dtype);
  const float dt_bias =
      FromBits(LoadBits(args.dt_bias, value_head), args.dt_bias.dtype);
  double sum[2] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane + i;
    const bool live = t < count;
    const float b = live ? Sigmoid(gates.b[i]) : 0.0f;
    if (live) sum[i] = double{LogDecayOf(gates.a[i], a_log, dt_bias)};
    decays.beta[t] = b;
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
    decays.log_decay[t] = g;
    to.decay[t] = DecayOf(static_cast<float>(g));
    to.rest[t] = DecayOf(static_cast<float>(__dadd_rn(all, -g)));
  }
}

/// Fills the rest from G, by kThreads threads; meet before and after.
template <int kThreads>
__device__ inline void MakeDecaysBetween(HeadDecays& decays, int thread) {
  const auto between = [&](int i, int j) {
    return DecayOf(static_cast<float>(
        __dadd_rn(decays.log_decay[i], -decays.log_decay[j])));
  };
  if (thread < kChunk) {
    decays.from_first[thread] = between(thread, thread / kTile * kTile);
  }
  for (int at = thread; at < kTiles * kChunk; at += kThreads) {
    const int first = at / kChunk * kTile;
    const int j = at % kChunk;
    if (j < first) decays.to_first[at / kChunk][j] = between(first, j);
  }
  for (int at = thread; at < kChunk * kTile; at += kThreads) {
    const int i = at / kTile;
    const int j = at % kTile;
    if (j > i % kTile) continue;
    decays.within[i / kTile][i % kTile][j] = between(i, i / kTile * kTile + j);
  }
}

}  // namespace signet::backend::gpu
