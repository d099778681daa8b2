#pragma once
// The kernel of indexed expert products: one input row a slot (decode), of the
// experts that the ids, or a route made on the way, name. Device code, and the
// launch of it.

#include <cstdint>

#include "backend/gpu/dot.cuh"
#include "backend/gpu/float_config.h"
#include "backend/gpu/math.cuh"
#include "backend/gpu/route.cuh"
#include "backend/kernels.h"

namespace signet::backend::gpu {

enum class ExpertOp {
  kGateUp,       // gate and up of the slots' tokens
  kRouteGateUp,  // route, gate and up, activation
  kDown,         // down of the slots' activations
};

struct ExpertKernelArgs {
  const int32_t* live;
  int capacity;
  int top_k;
  ExpertTableView table;
  int64_t cols;
  int64_t rows;  // of one matrix
  bool vectors;  // as far as the host knows; pointers may say otherwise
  // Needed on the vector path of long rows of gate and up.
  bool input_in_shared;
  bool table_in_shared;
  const int32_t* ids;  // [S]; of a route made here: null
  const float* x;      // [B, cols]; of kDown [S, cols]
  float* low_out;      // gate, activation or down
  float* high_out;     // up
  // kRouteGateUp
  const float* scores;
  int32_t* routed_ids;
  float* routed_weights;
  int32_t* flag;
  bool renormalise;
  // Of the down matrices, which come next, every block asks for a piece of each
  // while it waits for its own last weights; no more than the second-level
  // cache holds beside everything else.
  int64_t down_bytes;
  int64_t down_piece;
  int down_slots;
};

inline constexpr int64_t kMaxPrefetchBytes = int64_t{24} << 20;

namespace {

/// A slot that this rank computes.
struct ExpertSlot {
  const char* low;
  const char* high;
  const char* down;  // to prefetch, of kRouteGateUp
  const float* input;
  int64_t slot;
  int token;
};

struct SlotList {
  ExpertSlot slots[kExpertSlots];
  int counts[kTeamWarps];
  int32_t ids[kExpertSlots];
  float weights[kExpertSlots];
};

__device__ __forceinline__ ExpertPointers
ReadExpert(const ExpertTableView& table, int id) {
  const int32_t local = table.global_to_local[id];
  return local < 0 ? ExpertPointers() : table.experts[local];
}

/// Fills `list` with the live slots of this block's range whose experts are
/// here, in order; returns their number. `vectors` becomes false if any expert
/// lies at another than a multiple of 16 bytes. All threads call it; copies to
/// shared memory are there when it returns.
template <ExpertOp kOp>
__device__ __forceinline__ int ListSlots(const ExpertKernelArgs& args,
                                         int64_t live,
                                         const ExpertPointers* table,
                                         SlotList& list, bool& vectors) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t slot = static_cast<int64_t>(blockIdx.y) * kExpertSlots + thread;
  int32_t id = -1;
  if (slot < live * args.top_k) {
    id = kOp == ExpertOp::kRouteGateUp ? list.ids[thread]
                                       : __ldcg(args.ids + slot);
  }
  ExpertPointers expert;
  if (id >= 0) {
    expert = table != nullptr ? table[id] : ReadExpert(args.table, id);
  }
  ExpertSlot own = {};
  own.slot = slot;
  own.token = static_cast<int>(slot / args.top_k);
  if constexpr (kOp == ExpertOp::kDown) {
    own.low = own.high = static_cast<const char*>(expert.down);
    own.input = args.x + slot * args.cols;
  } else {
    own.low = static_cast<const char*>(expert.gate);
    own.high = static_cast<const char*>(expert.up);
    own.down = static_cast<const char*>(expert.down);
    own.input = args.x + own.token * args.cols;
  }
  const bool here = own.low != nullptr;
  const unsigned mask = __ballot_sync(kAllLanes, here);
  const int warp = thread / kWarpSize;
  if (LaneOfThread() == 0) list.counts[warp] = __popc(mask);
  const auto odd = (reinterpret_cast<uintptr_t>(own.low) |
                    reinterpret_cast<uintptr_t>(own.high)) %
                   16;
  WaitForCopies();
  vectors = __syncthreads_and(vectors && odd == 0) != 0;
  int at = __popc(mask & ((1u << LaneOfThread()) - 1));
  int total = 0;
#pragma unroll
  for (int w = 0; w < kTeamWarps; ++w) {
    if (w < warp) at += list.counts[w];
    total += list.counts[w];
  }
  if (here) list.slots[at] = own;
  __syncthreads();
  // The same everywhere, and the compiler is to know it.
  return static_cast<int>(
      __reduce_max_sync(kAllLanes, static_cast<unsigned>(total)));
}

/// This block's share of the down matrices of the list; all warps call it.
__device__ __forceinline__ void PrefetchDown(const ExpertKernelArgs& args,
                                             const SlotList& list,
                                             int num_slots) {
  const int64_t begin = blockIdx.x * args.down_piece;
  const int64_t left = args.down_bytes - begin;
  if (LaneOfThread() != 0 || left <= 0) return;
  const int count = min(num_slots, args.down_slots);
#pragma unroll 1
  for (int slot = static_cast<int>(threadIdx.x) / kWarpSize; slot < count;
       slot += kTeamWarps) {
    const char* down = list.slots[slot].down;
    if (down == nullptr) continue;
    PrefetchWeights(down + begin,
                    left < args.down_piece ? left : args.down_piece);
  }
}

/// The groups of one team, in a stride over those of all slots of the list.
template <ExpertOp kOp, int kRows>
struct ExpertSource {
  static constexpr int kHalf = kRows / 2;
  static constexpr bool kPair = kOp != ExpertOp::kDown;
  static constexpr int kStep = kPair ? kHalf : kRows;

  const ExpertKernelArgs& args;
  const SlotList& list;
  int num_slots;
  int64_t low_bytes;   // of a row
  int64_t high_bytes;  // of a row of the other matrix of a pair
  int rows;
  int groups;  // of a slot
  int slot;
  int group_at;
  int slot_stride;
  int group_stride;

  __device__ __forceinline__ ExpertSource(const ExpertKernelArgs& op,
                                          const SlotList& slots, int count,
                                          int64_t low, int64_t high, int team,
                                          int teams)
      : args(op),
        list(slots),
        num_slots(count),
        low_bytes(low),
        high_bytes(high),
        rows(static_cast<int>(op.rows)),
        groups((rows + kStep - 1) / kStep),
        slot(team / groups),
        group_at(team % groups),
        slot_stride(teams / groups),
        group_stride(teams % groups) {}

  __device__ __forceinline__ bool Next(RowGroup& group) {
    if (slot >= num_slots) {
      if constexpr (kOp == ExpertOp::kRouteGateUp) {
        PrefetchDown(args, list, num_slots);
      }
      return false;
    }
    group.part = slot;
    group.row = group_at * kStep;
    slot += slot_stride;
    group_at += group_stride;
    if (group_at >= groups) {
      group_at -= groups;
      ++slot;
    }
    return true;
  }
  __device__ __forceinline__ GroupRows Rows(const RowGroup& group) const {
    const ExpertSlot& from = list.slots[group.part];
    GroupRows to;
    to.low = from.low + group.row * low_bytes;
    to.high =
        kPair ? from.high + group.row * high_bytes : to.low + kHalf * low_bytes;
    CutGroup<kRows>(to, kPair, rows - group.row);
    return to;
  }
};

/// The input row of a group's slot, of those in shared memory: per token two
/// planes of octets, low and high halves.
struct SharedSlotInput {
  const SlotList& list;
  const float4* planes;
  int octets;

  template <int kHalf>
  __device__ __forceinline__ float4 Get(const RowGroup& group, int,
                                        int q) const {
    return planes[(2 * list.slots[group.part].token + kHalf) * octets + q];
  }
};

/// The input row of a group's slot, from device memory.
template <bool kVectors>
struct SlotInput {
  const SlotList& list;
  int64_t cols;

  template <int kHalf>
  __device__ __forceinline__ float4 Get(const RowGroup& group, int,
                                        int q) const {
    return LoadHalf<kVectors>(list.slots[group.part].input, cols,
                              static_cast<int64_t>(q) * 8 + 4 * kHalf);
  }
};

template <ExpertOp kOp, int kRows>
struct ExpertFinish {
  const ExpertKernelArgs& args;
  const SlotList& list;

  __device__ __forceinline__ float Begin(const RowGroup&, int, int) const {
    return 0.0f;
  }
  __device__ __forceinline__ void End(const RowGroup& group, int, int r,
                                      float value, float partner, float) const {
    constexpr int kHalf = kRows / 2;
    const bool high = kOp != ExpertOp::kDown && r >= kHalf;
    const int64_t row = group.row + (high ? r - kHalf : r);
    if (row >= args.rows) return;
    const int64_t at = list.slots[group.part].slot * args.rows + row;
    if constexpr (kOp == ExpertOp::kRouteGateUp) {
      if (!high) args.low_out[at] = __fmul_rn(Silu(value), partner);
    } else {
      (high ? args.high_out : args.low_out)[at] = value;
    }
  }
};

template <ExpertOp kOp, typename Shape, typename Weights, typename Input>
__device__ __forceinline__ void MultiplySlots(
    const ExpertKernelArgs& args, const Weights& weights, const Input& input,
    int64_t low_bytes, int64_t high_bytes, const SlotList& list, int num_slots,
    float* partials) {
  constexpr bool kOneTeam = Shape::kThreads == kTeamThreads;
  constexpr int kTeams = kTeamThreads / Shape::kThreads;
  const int team =
      static_cast<int>(blockIdx.x) * kTeams +
      (kOneTeam ? 0 : static_cast<int>(threadIdx.x) / Shape::kThreads);
  ExpertSource<kOp, Shape::kRows> source(args, list, num_slots, low_bytes,
                                         high_bytes, team,
                                         static_cast<int>(gridDim.x) * kTeams);
  RowGroup group;
  DotTile<Shape, Weights> tile;
  if (!source.Next(group)) return;
  LoadFirst(weights, source, group, tile);
  const ExpertFinish<kOp, Shape::kRows> finish = {args, list};
  MultiplyGroups<Shape>(weights, input, source, finish, group, tile, partials);
}

template <ExpertOp kOp, int kWarps, bool kOneStep>
__global__ void __launch_bounds__(kTeamThreads,
                                  ExpertBlocksPerSm(kWarps,
                                                    kOp != ExpertOp::kDown))
    ExpertKernel(const __grid_constant__ ExpertKernelArgs args) {
  constexpr ExpertStep kStep = StepOfExpert(kWarps, kOp != ExpertOp::kDown);
  using Shape = DotShape<kWarps, kStep.rows, kStep.chunks, 1, kOneStep>;
  using AnyShape = DotShape<kWarps, 2, 1, 1>;
  static_assert(AnyShape::kPartials <= Shape::kPartials);
  // The input planes, then the table.
  extern __shared__ float4 planes[];
  constexpr bool kSharedInput = kOp != ExpertOp::kDown;
  __shared__ SlotList list;
  __shared__ float partials[Shape::kPartials + 1];
  const int thread = static_cast<int>(threadIdx.x);
  // The tables are as constant as the weights.
  const auto octets = static_cast<int>((args.cols + 7) / 8);
  auto* table = reinterpret_cast<ExpertPointers*>(
      args.table_in_shared
          ? planes + (args.input_in_shared ? 2 * args.capacity * octets : 0)
          : nullptr);
  if (table != nullptr) {
    for (int e = thread; e < static_cast<int>(args.table.num_experts);
         e += kTeamThreads) {
      table[e] = ReadExpert(args.table, e);
    }
  }
  WaitForEarlier();
  if constexpr (kOp != ExpertOp::kRouteGateUp) LetNextStart();

  const int64_t live = __ldcg(args.live);
  if (kSharedInput && args.input_in_shared) {
    for (int i = thread; i < live * octets; i += kTeamThreads) {
      float4* to = planes + i / octets * 2 * octets + i % octets;
      const float* from = args.x + static_cast<int64_t>(8) * i;
      CopyToShared(from, to);
      CopyToShared(from + 4, to + octets);
    }
  }
  if constexpr (kOp == ExpertOp::kRouteGateUp) {
    // A warp a token; every block routes all of them.
    const int token = thread / kWarpSize;
    const int lane = LaneOfThread();
    if (token < live) {
      const int at = token * args.top_k;
      const auto num_experts = static_cast<int>(args.table.num_experts);
      const bool finite =
          RouteRow(args.scores + token * num_experts, num_experts, args.top_k,
                   args.renormalise, lane, list.ids + at, list.weights + at);
      if (blockIdx.x == 0) {
        for (int k = lane; k < args.top_k; k += kWarpSize) {
          args.routed_ids[at + k] = list.ids[at + k];
          args.routed_weights[at + k] = list.weights[at + k];
        }
        if (!finite && lane == 0) atomicOr(args.flag, kFlagNonFinite);
        __threadfence();
      }
    }
  }
  __syncthreads();
  // Not before: the launch after this one may read the route as it starts.
  if constexpr (kOp == ExpertOp::kRouteGateUp) LetNextStart();
  bool vectors = args.vectors;
  const int num_slots = ListSlots<kOp>(args, live, table, list, vectors);
  if (vectors) {
    const int64_t row_bytes = args.cols * 2;
    const VectorWeights weights = {row_bytes, octets};
    if constexpr (kSharedInput) {
      MultiplySlots<kOp, Shape>(
          args, weights, SharedSlotInput{list, planes, octets}, row_bytes,
          row_bytes, list, num_slots, partials);
    } else {
      MultiplySlots<kOp, Shape>(args, weights, SlotInput<true>{list, args.cols},
                                row_bytes, row_bytes, list, num_slots,
                                partials);
    }
    return;
  }
  const bool down = kOp == ExpertOp::kDown;
  const StoredWeights weights = {
      down ? args.table.down_dtype : args.table.gate_dtype,
      down ? args.table.down_dtype : args.table.up_dtype, args.cols, octets};
  MultiplySlots<kOp, AnyShape>(
      args, weights, SlotInput<false>{list, args.cols},
      args.cols * static_cast<int64_t>(SizeOf(weights.low_dtype)),
      args.cols * static_cast<int64_t>(SizeOf(weights.high_dtype)), list,
      num_slots, partials);
}

inline ExpertDesc DescribeGateUp(const IndexedGateUpArgs& op, int num_sms) {
  const ExpertTableView& table = op.table;
  return {.capacity = op.rows.capacity,
          .top_k = op.top_k,
          .num_experts = table.num_experts,
          .rows = table.width,
          .cols = table.hidden,
          .paired = true,
          .bf16 = table.gate_dtype == tensor::DType::kBF16 &&
                  table.up_dtype == tensor::DType::kBF16,
          .aligned = reinterpret_cast<uintptr_t>(op.x) % 16 == 0,
          .num_sms = num_sms};
}

/// The arguments that all ops share, from the experts and their shape.
inline ExpertKernelArgs ExpertArgs(const Rows& rows, int64_t top_k,
                                   const ExpertTableView& table, const float* x,
                                   const ExpertDesc& desc,
                                   const ExpertConfig& config) {
  ExpertKernelArgs args = {};
  args.live = rows.live;
  args.capacity = static_cast<int>(rows.capacity);
  args.top_k = static_cast<int>(top_k);
  args.table = table;
  args.x = x;
  args.rows = desc.rows;
  args.cols = desc.cols;
  args.vectors = config.vectors;
  args.input_in_shared = config.input_in_shared;
  args.table_in_shared = config.table_in_shared;
  return args;
}

template <ExpertOp kOp>
Status RunExperts(Stream stream, const ExpertConfig& config,
                  const ExpertKernelArgs& args) {
  if (config.blocks == 0 || config.slot_blocks == 0) return kOk;
  const auto run = [&](auto* kernel) {
    if (config.shared_bytes > (size_t{32} << 10)) {  // beside the static part
      const Status status = cudaFuncSetAttribute(
          kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
          static_cast<int>(config.shared_bytes));
      if (status != kOk) return status;
    }
    return LaunchRows(args.capacity, kernel,
                      dim3(static_cast<unsigned>(config.blocks),
                           static_cast<unsigned>(config.slot_blocks)),
                      dim3(kTeamThreads), config.shared_bytes, stream, args);
  };
  if (config.dot_warps == 1) {
    return kOp != ExpertOp::kDown && args.cols <= 8 * 8 * kWarpSize
               ? run(&ExpertKernel<kOp, 1, true>)
               : run(&ExpertKernel<kOp, 1, false>);
  }
  if (args.cols <= 8 * kTeamThreads) {
    return run(&ExpertKernel<kOp, kTeamWarps, true>);
  }
  return run(&ExpertKernel<kOp, kTeamWarps, false>);
}

}  // namespace
}  // namespace signet::backend::gpu
