#pragma once
// The route of few rows by the first kTeamThreads threads of a block, with the
// bits of Route (route.cuh) by ranks instead of rounds, and the rows of gate
// and up that it selects: for the decoding kernels that do both.

#include <cstdint>

#include "backend/fused_kernels.h"
#include "backend/gpu/decode_gate_up.h"
#include "backend/gpu/math.cuh"
#include "backend/gpu/route.cuh"
#include "backend/gpu/row_dot.cuh"
#include "backend/views.h"

namespace signet::backend::gpu {

constexpr int kRouteTopK = 8;                   // at most
constexpr int kMaxRouteExperts = kTeamThreads;  // a thread each
constexpr int32_t kForeign = 0x7fffffff;        // no expert of this rank
constexpr int kRouteCandidates = kTeamWarps * kRouteTopK;

/// What a route reads beside the scores, and writes.
struct RouteTable {
  const ExpertPointers* experts;   // [E_r]
  const int32_t* global_to_local;  // [E]
  int32_t* ids;                    // [B, K]
  float* weights;                  // [B, K]
  int32_t* flag;
  DownSlot* down;  // [S], or null
  int num_experts;
  int top_k;
  int lanes;
  int first_lane;
};

/// The matrices of a slot that this rank computes, and its token.
struct RoutedSlot {
  const char* gate;
  const char* up;
  int token;
  int slot;
};

struct Matrices {
  const char* gate;
  const char* up;
  const char* down;
};

/// Shared memory beside the input planes, for up to kTokens rows.
template <int kTokens>
struct Routed {
  static constexpr int kSlots = kTokens * kRouteTopK;

  Matrices table[kMaxRouteExperts];  // null: foreign
  // Keys order scores; 0 stands for none.
  alignas(16) uint32_t keys[kTokens][kMaxRouteExperts];
  // Each warp's best of a token, best first.
  alignas(16) uint32_t best[kTokens][kRouteCandidates];
  int32_t best_ids[kTokens][kRouteCandidates];
  int32_t best_here[kTokens][kRouteCandidates];  // or kForeign
  int not_finite;                                // a bit a token
  int32_t ids[kSlots];
  alignas(16) int32_t here[kSlots];  // ids of this rank's experts, or kForeign
  float selected[kSlots];
  RoutedSlot slots[kSlots];
  int count;
};

/// The matrices of every expert, as constant as the weights: before any wait.
/// kTeamThreads threads share the work.
template <int kTokens>
__device__ __forceinline__ void FillTable(const RouteTable& args,
                                          Routed<kTokens>& routed) {
#pragma unroll 1
  for (int e = ThreadOf<kTeamThreads>(); e < args.num_experts;
       e += kTeamThreads) {
    const int32_t local = args.global_to_local[e];
    Matrices found = {};
    if (local >= 0) {
      found = {static_cast<const char*>(args.experts[local].gate),
               static_cast<const char*>(args.experts[local].up),
               static_cast<const char*>(args.experts[local].down)};
    }
    routed.table[e] = found;
  }
}

/// Before the others, and a barrier between.
template <int kTokens>
__device__ __forceinline__ void BeginRoute(Routed<kTokens>& routed) {
  if (threadIdx.x < Routed<kTokens>::kSlots) {
    routed.here[threadIdx.x] = kForeign;
  }
  if (threadIdx.x == 0) routed.not_finite = 0;
}

/// How many of kCount keys come before `key`, which is that at `index`: the
/// greater ones, and of equal ones those before it.
template <int kCount>
__device__ __forceinline__ int RankOf(uint32_t key, int index,
                                      const uint32_t* keys) {
  int rank = 0;
#pragma unroll 4
  for (int i = 0; i < kCount; i += 4) {
    const uint4 other = *reinterpret_cast<const uint4*>(keys + i);
    rank += other.x > key || (other.x == key && i < index);
    rank += other.y > key || (other.y == key && i + 1 < index);
    rank += other.z > key || (other.z == key && i + 2 < index);
    rank += other.w > key || (other.w == key && i + 3 < index);
  }
  return rank;
}

/// Every warp's best kRouteTopK of its 32 scores of every token. `score(token,
/// id)` is one of them; `is_here`: this rank has the thread's expert.
template <int kTokens, typename Score>
__device__ __forceinline__ void SelectInWarps(const RouteTable& args, int live,
                                              const Score& score, bool is_here,
                                              Routed<kTokens>& routed) {
  const int id = static_cast<int>(threadIdx.x);
  const int lane = LaneOfThread();
  const int first = id - lane;
  const bool has_score = id < args.num_experts;
  float scores[kTokens];
#pragma unroll
  for (int token = 0; token < kTokens; ++token) {
    scores[token] = 0.0f;
    if (has_score && (kTokens == 1 || token < live)) {
      scores[token] = score(token, id);
    }
  }
#pragma unroll
  for (int token = 0; token < kTokens; ++token) {
    if (!IsFiniteScore(scores[token])) {
      atomicOr(&routed.not_finite, 1 << token);
    }
    routed.keys[token][id] = has_score ? KeyOf(scores[token]) : 0;
  }
  __syncwarp();
#pragma unroll 1
  for (int token = 0; token < kTokens; ++token) {
    const uint32_t* keys = routed.keys[token];
    const uint32_t key = keys[id];
    const int rank = RankOf<kWarpSize>(key, lane, keys + first);
    if (rank < kRouteTopK) {
      const int at = first / kWarpSize * kRouteTopK + rank;
      routed.best[token][at] = key;
      routed.best_ids[token][at] = id;
      routed.best_here[token][at] = is_here ? id : kForeign;
    }
  }
}

/// The first threads of a block, which select of all warps' best: of one token
/// a warp, which needs no barrier of the block.
template <int kTokens>
inline constexpr int kSelectThreads = kTokens == 1 ? kWarpSize : kTeamThreads;

/// The best top_k of all warps' best of every token, best first. Of equal keys
/// the first candidate has the lowest id.
template <int kTokens>
__device__ __forceinline__ void SelectOfWarps(const RouteTable& args, int live,
                                              Routed<kTokens>& routed) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < live * kRouteCandidates;
       i += kSelectThreads<kTokens>) {
    const int token = i / kRouteCandidates;
    const int candidate = i % kRouteCandidates;
    const uint32_t key = routed.best[token][candidate];
    const int rank =
        RankOf<kRouteCandidates>(key, candidate, routed.best[token]);
    if (rank < args.top_k) {
      const bool finite = (routed.not_finite >> token & 1) == 0;
      const int at = token * args.top_k + rank;
      routed.ids[at] = finite ? routed.best_ids[token][candidate] : -1;
      routed.here[at] = finite ? routed.best_here[token][candidate] : kForeign;
      routed.selected[at] = ScoreOf(key);
    }
  }
}

/// The slots that are computed here, expert after expert: what tokens share is
/// read at about one time. A thread a slot.
template <int kTokens>
__device__ __forceinline__ void ListSlots(const RouteTable& args,
                                          Routed<kTokens>& routed) {
  const int slot = static_cast<int>(threadIdx.x);
  if (slot >= Routed<kTokens>::kSlots) return;
  const int id = routed.here[slot];
  int before = 0;
  int count = 0;
#pragma unroll 4
  for (int i = 0; i < Routed<kTokens>::kSlots; ++i) {
    const int other = routed.here[i];
    before += other < id || (other == id && i < slot);
    count += other != kForeign;
  }
  if (slot == 0) routed.count = count;
  if (id == kForeign) return;
  const Matrices& found = routed.table[id];
  routed.slots[before] = {found.gate, found.up, slot / args.top_k, slot};
}

/// Ids, weights and the flag. A warp calls it.
template <int kTokens>
__device__ __forceinline__ void KeepRoute(const RouteTable& args, int slots,
                                          const Routed<kTokens>& routed) {
  const int lane = LaneOfThread();
#pragma unroll 1
  for (int s = lane; s < slots; s += kWarpSize) {
    const float* selected = routed.selected + s / args.top_k * args.top_k;
    float sum = 0.0f;
#pragma unroll 1
    for (int k = 0; k < args.top_k; ++k) {
      sum = __fadd_rn(sum, Exp(__fsub_rn(selected[k], selected[0])));
    }
    const int32_t id = routed.ids[s];
    const float own = Exp(__fsub_rn(routed.selected[s], selected[0]));
    const float weight = id < 0 ? 0.0f : __fdiv_rn(own, sum);
    args.ids[s] = id;
    args.weights[s] = weight;
    if (args.down == nullptr) continue;
    args.down[s] = {id < 0 ? nullptr : routed.table[id].down, weight,
                    id * args.lanes / args.num_experts - args.first_lane};
  }
  if (lane == 0 && routed.not_finite != 0) atomicOr(args.flag, kFlagNonFinite);
  __threadfence();
  __syncwarp();
}

/// The rows of the selected experts and what becomes of them.
struct GateUpRows {
  float* out;  // [S, I]
  int octets;  // of a row
  int width;   // I
};

/// A row of gate with the same of up, slot after slot.
struct GateUpItems {
  const GateUpRows& args;
  const RoutedSlot* slots;
  const float4* input;
  int item;
  int count;
  int stride;
  int slot;
  int row;

  __device__ __forceinline__ GateUpItems(const GateUpRows& op,
                                         const RoutedSlot* listed,
                                         int num_slots, int first, int step,
                                         const float4* planes)
      : args(op),
        slots(listed),
        input(planes),
        item(first),
        count(num_slots * op.width),
        stride(step) {
    Locate();
  }

  __device__ __forceinline__ bool IsOver() const { return item >= count; }
  __device__ __forceinline__ bool Advance() {
    item += stride;
    Locate();
    return !IsOver();
  }
  __device__ __forceinline__ void Point(const char* (&rows)[2]) const {
    const int64_t at = int64_t{16} * row * args.octets + LaneOfThread() * 16;
    rows[0] = slots[slot].gate + at;
    rows[1] = slots[slot].up + at;
  }
  __device__ __forceinline__ void Begin() const {}
  __device__ __forceinline__ PlanesInput Input() const {
    return {input + 2 * slots[slot].token * args.octets, args.octets};
  }
  __device__ __forceinline__ void Finish(float value) const {
    const float up = __shfl_down_sync(kAllLanes, value, kWarpSize / 2);
    if (LaneOfThread() != 0) return;
    args.out[static_cast<int64_t>(slots[slot].slot) * args.width + row] =
        __fmul_rn(Silu(value), up);
  }

 private:
  __device__ __forceinline__ void Locate() {
    slot = item / args.width;
    row = item - slot * args.width;
  }
};

/// The parts of a launch's arguments.
inline RouteTable RouteTableOf(const RouteGateUpArgs& op,
                               const DownSlots& down) {
  const ExpertTableView& table = op.gate_up.table;
  return {table.experts,
          table.global_to_local,
          op.route.ids,
          op.route.weights,
          op.route.flag,
          down.slots,
          static_cast<int>(table.num_experts),
          static_cast<int>(op.route.top_k),
          static_cast<int>(down.lanes),
          static_cast<int>(down.first_lane)};
}
inline GateUpRows GateUpRowsOf(const RouteGateUpArgs& op) {
  const ExpertTableView& table = op.gate_up.table;
  return {op.activation.out, static_cast<int>(table.hidden / 8),
          static_cast<int>(table.width)};
}

}  // namespace signet::backend::gpu
