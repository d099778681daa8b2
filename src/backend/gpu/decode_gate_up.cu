#include <algorithm>

#include "backend/gpu/decode_gate_up.h"
#include "backend/gpu/float_config.h"
#include "backend/gpu/math.cuh"
#include "backend/gpu/route.cuh"
#include "backend/gpu/row_dot.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kBlocksPerSm = 2;
constexpr int kMaxRows = 8;
constexpr int kTopK = 8;  // at most
constexpr int kMaxSlots = kMaxRows * kTopK;
constexpr int kMaxExperts = kTeamThreads;  // a thread each
constexpr int kCandidates = kTeamWarps * kTopK;
static_assert(4 * kCandidates == kTeamThreads);
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

/// A score that may be selected: keys order scores, 0 stands for none.
struct Candidate {
  uint32_t key;
  int32_t id;
};

/// Shared memory beside the input planes.
struct Routed {
  Matrices table[kMaxExperts];  // null: foreign
  float scores[kMaxRows * kMaxExperts];
  // Each warp's best of a token, best first.
  Candidate best[kMaxRows][kCandidates];
  int not_finite;  // a bit a token
  int32_t ids[kMaxSlots];
  float selected[kMaxSlots];
  float exponentials[kMaxSlots];
  Slot slots[kMaxSlots];
  int count;
};

/// Takes the greatest of the lanes' keys, the lowest lane of equal ones: that
/// lane gets true.
__device__ __forceinline__ bool WinsRound(uint32_t key, uint32_t most) {
  const unsigned equal = __ballot_sync(kAllLanes, key == most);
  return LaneOfThread() == __ffs(static_cast<int>(equal)) - 1;
}

/// Every warp's best kTopK of its 32 scores of every live token. Rounds, not
/// networks: short code, which is fetched once a launch.
__device__ __forceinline__ void SelectInWarps(const GateUpArgs& args, int live,
                                              Routed& routed) {
  const int id = static_cast<int>(threadIdx.x);
  const int warp = id / kWarpSize;
  const bool has_score = id < args.num_experts;
#pragma unroll 1
  for (int token = 0; token < live; ++token) {
    const float score =
        has_score ? routed.scores[token * args.num_experts + id] : 0.0f;
    if (!IsFiniteScore(score)) atomicOr(&routed.not_finite, 1 << token);
    uint32_t key = has_score ? KeyOf(score) : 0;
#pragma unroll 1
    for (int k = 0; k < kTopK; ++k) {
      const uint32_t most = __reduce_max_sync(kAllLanes, key);
      if (WinsRound(key, most)) {
        routed.best[token][warp * kTopK + k] = {key, id};
        key = 0;
      }
    }
  }
}

/// The best top_k of all warps' best of token `warp`, best first. Of equal keys
/// the first candidate has the lowest id.
__device__ __forceinline__ void SelectOfWarps(const GateUpArgs& args, int live,
                                              Routed& routed) {
  const int token = static_cast<int>(threadIdx.x) / kWarpSize;
  if (token >= live) return;
  const int lane = LaneOfThread();
  Candidate low = routed.best[token][lane];
  Candidate high = routed.best[token][kWarpSize + lane];
  const bool finite = (routed.not_finite >> token & 1) == 0;
#pragma unroll 1
  for (int k = 0; k < args.top_k; ++k) {
    const uint32_t most = __reduce_max_sync(kAllLanes, max(low.key, high.key));
    const bool is_low = __any_sync(kAllLanes, low.key == most) != 0;
    if (WinsRound(is_low ? low.key : high.key, most)) {
      const int id = is_low ? low.id : high.id;
      routed.ids[token * args.top_k + k] = finite ? id : -1;
      routed.selected[token * args.top_k + k] = ScoreOf(most);
      (is_low ? low.key : high.key) = 0;
    }
  }
}

/// The slots that are computed here, in order. The first warp calls it.
__device__ __forceinline__ void ListSlots(const GateUpArgs& args, int slots,
                                          Routed& routed) {
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

/// Ids, weights and the flag, by the first block, which has them after all
/// others: nothing in this launch waits for them.
__device__ __forceinline__ void KeepRoute(const GateUpArgs& args, int slots,
                                          Routed& routed) {
  const int s = static_cast<int>(threadIdx.x);
  const int first = s / args.top_k * args.top_k;
  if (s < slots) {
    routed.exponentials[s] =
        Exp(__fsub_rn(routed.selected[s], routed.selected[first]));
  }
  __syncthreads();
  if (s < slots) {
    float sum = 0.0f;
#pragma unroll 1
    for (int k = 0; k < args.top_k; ++k) {
      sum = __fadd_rn(sum, routed.exponentials[first + k]);
    }
    const int32_t id = routed.ids[s];
    args.ids[s] = id;
    args.weights[s] = id < 0 ? 0.0f : __fdiv_rn(routed.exponentials[s], sum);
  }
  if (s == 0 && routed.not_finite != 0) atomicOr(args.flag, kFlagNonFinite);
}

/// A row of gate with the same of up, slot after slot.
struct Items {
  const GateUpArgs& args;
  const Routed& routed;
  const float4* input;
  int item;
  int count;
  int stride;
  int slot;
  int row;

  __device__ __forceinline__ Items(const GateUpArgs& op, const Routed& found,
                                   const float4* planes)
      : args(op),
        routed(found),
        input(planes + LaneOfThread()),
        item(static_cast<int>(blockIdx.x * kTeamWarps +
                              threadIdx.x / kWarpSize)),
        count(found.count * op.width),
        stride(static_cast<int>(gridDim.x) * kTeamWarps) {
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
    rows[0] = routed.slots[slot].gate + at;
    rows[1] = routed.slots[slot].up + at;
  }
  __device__ __forceinline__ const float4* Input() const {
    return input + 2 * routed.slots[slot].token * args.octets;
  }
  __device__ __forceinline__ void Finish(float value) const {
    const float up = __shfl_down_sync(kAllLanes, value, kWarpSize / 2);
    if (LaneOfThread() != 0) return;
    args.out[static_cast<int64_t>(routed.slots[slot].slot) * args.width + row] =
        __fmul_rn(Silu(value), up);
  }

 private:
  __device__ __forceinline__ void Locate() {
    slot = item / args.width;
    row = item - slot * args.width;
  }
};

__global__ void __launch_bounds__(kTeamThreads, kBlocksPerSm)
    GateUpKernel(const __grid_constant__ GateUpArgs args) {
  extern __shared__ float4 input[];  // two planes a token
  __shared__ Routed routed;
  LetNextStart();
  const int thread = static_cast<int>(threadIdx.x);
  // The table is as constant as the weights.
#pragma unroll 1
  for (int e = thread; e < args.num_experts; e += kTeamThreads) {
    const int32_t local = args.global_to_local[e];
    Matrices found = {};
    if (local >= 0) {
      found = {static_cast<const char*>(args.experts[local].gate),
               static_cast<const char*>(args.experts[local].up)};
    }
    routed.table[e] = found;
  }
  DependencyWait();

  const int live = __ldcg(args.live);
  if (live <= 0) return;
#pragma unroll 1
  for (int i = thread; i < live * args.num_experts; i += kTeamThreads) {
    routed.scores[i] = __ldcg(args.scores + i);
  }
#pragma unroll 1
  for (int token = 0; token < live; ++token) {
    const float* x = args.x + int64_t{8} * token * args.octets;
    float4* to = input + 2 * token * args.octets;
    for (int q = thread; q < args.octets; q += kTeamThreads) {
      CopyToShared(x + 8 * q, to + q);
      CopyToShared(x + 8 * q + 4, to + args.octets + q);
    }
  }
  if (thread == 0) routed.not_finite = 0;
  __syncthreads();
  SelectInWarps(args, live, routed);
  __syncthreads();
  SelectOfWarps(args, live, routed);
  __syncthreads();
  if (thread < kWarpSize) ListSlots(args, live * args.top_k, routed);
  WaitForCopies();
  __syncthreads();

  Items items(args, routed, input);
  const bool any = !items.IsOver();
  const char* rows[2];
  RowOctets<TwoRows> octets;
  if (any) {
    items.Point(rows);
    LoadStep<TwoRows>(rows, octets);
  }
  if (blockIdx.x == 0) KeepRoute(args, live * args.top_k, routed);
  if (any) {
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
  const int64_t items = op.route.rows.capacity * op.route.top_k * table.width;
  const int64_t blocks =
      std::min<int64_t>(static_cast<int64_t>(num_sms) * kBlocksPerSm,
                        (items + kTeamWarps - 1) / kTeamWarps);
  const size_t bytes = InputBytes(op);
  if (bytes > (size_t{28} << 10)) {  // beside the static part
    const Status status = cudaFuncSetAttribute(
        &GateUpKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(bytes));
    if (status != kOk) return status;
  }
  return Launch(&GateUpKernel, dim3(static_cast<unsigned>(blocks)),
                dim3(kTeamThreads), bytes, stream, args);
}

}  // namespace signet::backend::gpu
