#include <algorithm>

#include "backend/gpu/decode_gate_up.h"
#include "backend/gpu/float_config.h"
#include "backend/gpu/math.cuh"
#include "backend/gpu/route.cuh"
#include "backend/gpu/row_dot.cuh"

namespace signet::backend::gpu {
namespace {

// All of a multiprocessor: its warps route together, and ask for weights
// together, since shared memory has to wait behind such loads.
constexpr int kThreads = 512;
constexpr int kMaxRows = 8;
constexpr int kTopK = 8;                   // at most
constexpr int kMaxExperts = kTeamThreads;  // a thread each
constexpr int kCandidates = kTeamWarps * kTopK;
constexpr int64_t kMaxSharedBytes = int64_t{80} << 10;

struct GateUpArgs {
  const int32_t* live;
  const float* scores;             // [B, E]
  const float* x;                  // [B, H]
  const ExpertPointers* experts;   // [E_r]
  const int32_t* global_to_local;  // [E]
  int32_t* ids;                    // [B, K]
  float* weights;                  // [B, K]
  int32_t* flag;
  float* out;  // [S, I]
  int num_experts;
  int top_k;
  int octets;  // of a row
  int width;   // I
};

/// The matrices of a slot that this rank computes, and its token.
struct Slot {
  const char* gate;
  const char* up;
  int token;
  int slot;
};

struct Matrices {
  const char* gate;
  const char* up;
};

/// Shared memory beside the input planes, for up to kTokens rows.
template <int kTokens>
struct Routed {
  static constexpr int kSlots = kTokens * kTopK;

  Matrices table[kMaxExperts];  // null: foreign
  // Keys order scores; 0 stands for none.
  alignas(16) uint32_t keys[kTokens][kMaxExperts];
  // Each warp's best of a token, best first.
  alignas(16) uint32_t best[kTokens][kCandidates];
  int32_t best_ids[kTokens][kCandidates];
  int not_finite;  // a bit a token
  int32_t ids[kSlots];
  float selected[kSlots];
  Slot slots[kSlots];
  int count;
};

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

/// Every warp's best kTopK of its 32 scores of every token.
template <int kTokens>
__device__ __forceinline__ void SelectInWarps(const GateUpArgs& args, int live,
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
      scores[token] = __ldcg(args.scores + token * args.num_experts + id);
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
    if (rank < kTopK) {
      const int at = first / kWarpSize * kTopK + rank;
      routed.best[token][at] = key;
      routed.best_ids[token][at] = id;
    }
  }
}

/// The best top_k of all warps' best of every token, best first. Of equal keys
/// the first candidate has the lowest id. A thread a candidate.
template <int kTokens>
__device__ __forceinline__ void SelectOfWarps(const GateUpArgs& args, int live,
                                              Routed<kTokens>& routed) {
  const int candidate = static_cast<int>(threadIdx.x) % kCandidates;
#pragma unroll 1
  for (int token = static_cast<int>(threadIdx.x) / kCandidates; token < live;
       token += kTeamThreads / kCandidates) {
    const uint32_t key = routed.best[token][candidate];
    const int rank = RankOf<kCandidates>(key, candidate, routed.best[token]);
    if (rank < args.top_k) {
      const bool finite = (routed.not_finite >> token & 1) == 0;
      const int at = token * args.top_k + rank;
      routed.ids[at] = finite ? routed.best_ids[token][candidate] : -1;
      routed.selected[at] = ScoreOf(key);
    }
  }
}

/// The slots that are computed here, in order. The first warp calls it.
template <int kTokens>
__device__ __forceinline__ void ListSlots(const GateUpArgs& args, int slots,
                                          Routed<kTokens>& routed) {
  const int lane = LaneOfThread();
  int count = 0;
#pragma unroll 1
  for (int begin = 0; begin < slots; begin += kWarpSize) {
    const int slot = begin + lane;
    const int id = slot < slots ? routed.ids[slot] : -1;
    const Matrices found = id < 0 ? Matrices{} : routed.table[id];
    const unsigned here = __ballot_sync(kAllLanes, found.gate != nullptr);
    if (found.gate != nullptr) {
      routed.slots[count + __popc(here & ((1u << lane) - 1))] = {
          found.gate, found.up, slot / args.top_k, slot};
    }
    count += __popc(here);
  }
  if (lane == 0) routed.count = count;
}

/// Ids, weights and the flag. A warp calls it.
template <int kTokens>
__device__ __forceinline__ void KeepRoute(const GateUpArgs& args, int slots,
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
    args.ids[s] = id;
    args.weights[s] = id < 0 ? 0.0f : __fdiv_rn(own, sum);
  }
  if (lane == 0 && routed.not_finite != 0) atomicOr(args.flag, kFlagNonFinite);
  __threadfence();
  __syncwarp();
}

/// A row of gate with the same of up, slot after slot.
struct Items {
  const GateUpArgs& args;
  const Slot* slots;
  const float4* input;
  int item;
  int count;
  int stride;
  int slot;
  int row;

  __device__ __forceinline__ Items(const GateUpArgs& op, const Slot* listed,
                                   int num_slots, int first, int step,
                                   const float4* planes)
      : args(op),
        slots(listed),
        input(planes + LaneOfThread()),
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
  __device__ __forceinline__ const float4* Input() const {
    return input + 2 * slots[slot].token * args.octets;
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

template <int kTokens>
__global__ void __launch_bounds__(kThreads, 1)
    GateUpKernel(const __grid_constant__ GateUpArgs args) {
  extern __shared__ float4 input[];  // two planes a token
  __shared__ Routed<kTokens> routed;
  const int thread = static_cast<int>(threadIdx.x);
  // The table is as constant as the weights.
#pragma unroll 1
  for (int e = thread; e < args.num_experts; e += kThreads) {
    const int32_t local = args.global_to_local[e];
    Matrices found = {};
    if (local >= 0) {
      found = {static_cast<const char*>(args.experts[local].gate),
               static_cast<const char*>(args.experts[local].up)};
    }
    routed.table[e] = found;
  }
  if (thread == 0) routed.not_finite = 0;
  // Older than the launch before.
  const int live = __ldcg(args.live);
  __syncthreads();
  WaitForEarlier();

  if (live <= 0) return;
  if (thread < kTeamThreads) {
    SelectInWarps(args, live, routed);
  } else {
#pragma unroll 1
    for (int i = thread - kTeamThreads; i < live * args.octets;
         i += kThreads - kTeamThreads) {
      const int token = i / args.octets;
      float4* to = input + token * args.octets + i;
      CopyToShared(args.x + int64_t{8} * i, to);
      CopyToShared(args.x + int64_t{8} * i + 4, to + args.octets);
    }
  }
  __syncthreads();
  if (thread < kTeamThreads) SelectOfWarps(args, live, routed);
  __syncthreads();
  if (thread < kWarpSize) ListSlots(args, live * args.top_k, routed);
  WaitForCopies();
  __syncthreads();

  // The last warp keeps the route and multiplies nothing.
  const int warps = WarpsOfGrid() - 1;
  const int warp = WarpOfGrid();
  if (warp == warps) {
    KeepRoute(args, live * args.top_k, routed);
    LetNextStart();
    return;
  }
  Items items(args, routed.slots, routed.count, warp, warps, input);
  if (!items.IsOver()) {
    const char* rows[2];
    RowOctets<TwoRows> octets;
    items.Point(rows);
    LoadStep<TwoRows>(rows, octets);
    // The launch after this one may read the route as it starts: not before
    // that is kept.
    if (blockIdx.x + 1 < gridDim.x) LetNextStart();
    MultiplyGroupsOfRows<TwoRows>(items, args.octets, rows, octets);
  }
}

bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

size_t InputBytes(const RouteGateUpArgs& args) {
  return static_cast<size_t>(args.route.rows.capacity *
                             args.gate_up.table.hidden) *
         sizeof(float);
}

}  // namespace

bool TakesGateUp(const RouteGateUpArgs& args) {
  const ExpertTableView& table = args.gate_up.table;
  const int64_t capacity = args.route.rows.capacity;
  return table.gate_dtype == tensor::DType::kBF16 &&
         table.up_dtype == tensor::DType::kBF16 && capacity <= kMaxRows &&
         args.route.top_k <= kTopK && args.route.renormalise &&
         table.num_experts <= kMaxExperts && table.hidden > 0 &&
         table.hidden % TwoRows::kElements == 0 &&
         ExpertDotWarps(table.hidden) == 1 && table.width > 0 &&
         IsAligned(args.gate_up.x) &&
         static_cast<int64_t>(InputBytes(args)) <= kMaxSharedBytes;
}

Status RunGateUp(Stream stream, int num_sms, const RouteGateUpArgs& op) {
  const ExpertTableView& table = op.gate_up.table;
  if (op.route.rows.capacity == 0) return kOk;
  GateUpArgs args = {};
  args.live = op.route.rows.live;
  args.scores = op.route.scores;
  args.x = op.gate_up.x;
  args.experts = table.experts;
  args.global_to_local = table.global_to_local;
  args.ids = op.route.ids;
  args.weights = op.route.weights;
  args.flag = op.route.flag;
  args.out = op.activation.out;
  args.num_experts = static_cast<int>(table.num_experts);
  args.top_k = static_cast<int>(op.route.top_k);
  args.octets = static_cast<int>(table.hidden / 8);
  args.width = static_cast<int>(table.width);
  const size_t bytes = InputBytes(op);
  auto* kernel =
      op.route.rows.capacity == 1 ? &GateUpKernel<1> : &GateUpKernel<kMaxRows>;
  if (bytes > (size_t{28} << 10)) {  // beside the static part
    const Status status = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(bytes));
    if (status != kOk) return status;
  }
  return LaunchRows(op.route.rows.capacity, kernel,
                    dim3(static_cast<unsigned>(num_sms)), dim3(kThreads), bytes,
                    stream, args);
}

}  // namespace signet::backend::gpu
