#include <algorithm>

#include "backend/gpu/decode_moe_tail.h"
#include "backend/gpu/math.cuh"
#include "backend/gpu/row_dot.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kMaxRows = 8;
constexpr int kSlots = 8;   // of a token
constexpr int kOctets = 2;  // of a row, a lane
constexpr int kMaxWidth = 8 * kWarpSize * kOctets;
constexpr int kMaxExperts = 512;

struct TailArgs {
  const int32_t* live;
  const int32_t* global_to_local;  // [E]
  const ExpertPointers* experts;   // [E_r]
  const char* shared_down;         // [H, I_shared]
  const int32_t* ids;              // [S]
  const float* weights;            // [S]
  const float* act;                // [S, I]
  const float* shared_act;         // [B, I_shared]
  const float* gate;               // [B, 1]
  const float* residual;           // [B, H]
  float* out;                      // [B, H]
  int hidden;
  int octets;         // of an expert's row
  int shared_octets;  // of the shared expert's row
  int top_k;
  int num_experts;
  int lanes;
  int first_lane;
  int num_lanes;
};

/// A slot of a token that this rank computes, or none: down is null.
struct Slot {
  const char* down;
  float weight;
  int fold_lane;
};

struct Routed {
  const char* downs[kMaxExperts];  // null: foreign
  Slot slots[kMaxRows][kSlots];
  float sigmoids[kMaxRows];
};

using RowPart = uint4[kOctets];

/// This lane's part of a row.
__device__ __forceinline__ void LoadRow(const char* row, int octets,
                                        RowPart& part) {
  const int lane = LaneOfThread();
#pragma unroll
  for (int j = 0; j < kOctets; ++j) {
    const int q = j * kWarpSize + lane;
    if (q < octets) part[j] = LoadWeights(row + int64_t{16} * q);
  }
}

/// This lane's part of the product with an input row of two planes.
__device__ __forceinline__ float PartOfDot(const RowPart& part,
                                           const float4* planes, int octets) {
  const int lane = LaneOfThread();
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kOctets; ++j) {
    const int q = j * kWarpSize + lane;
    if (q < octets) sum = AddOctet(part[j], planes[q], planes[octets + q], sum);
  }
  return sum;
}

/// Asks for the activations of the live tokens as planes, a warp a row: per
/// token its slots, then the shared expert.
__device__ __forceinline__ void BringActs(const TailArgs& args, int live,
                                          int token_planes, float4* acts) {
  const int lane = LaneOfThread();
  const int rows_of_token = args.top_k + 1;
#pragma unroll 1
  for (int row = static_cast<int>(threadIdx.x) / kWarpSize;
       row < live * rows_of_token; row += kWarps) {
    const int token = row / rows_of_token;
    const int k = row - token * rows_of_token;
    const bool shared = k == args.top_k;
    const int octets = shared ? args.shared_octets : args.octets;
    const float* from =
        shared ? args.shared_act + int64_t{8} * token * octets
               : args.act + int64_t{8} * (token * args.top_k + k) * octets;
    float4* to = acts + token * token_planes + 2 * k * args.octets;
    for (int q = lane; q < octets; q += kWarpSize) {
      CopyToShared(from + 8 * q, to + q);
      CopyToShared(from + 8 * q + 4, to + octets + q);
    }
  }
}

/// The slots of the live tokens, by the first two warps; their scales, by the
/// third.
__device__ __forceinline__ void ListSlots(const TailArgs& args, int live,
                                          Routed& routed) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < live * kSlots) {
    const int token = thread / kSlots;
    const int k = thread % kSlots;
    Slot slot = {};
    if (k < args.top_k) {
      const int s = token * args.top_k + k;
      const int32_t id = __ldcg(args.ids + s);
      slot.weight = __ldcg(args.weights + s);
      if (id >= 0) {
        slot.down = routed.downs[id];
        slot.fold_lane = id * args.lanes / args.num_experts - args.first_lane;
      }
    }
    routed.slots[token][k] = slot;
  } else if (thread >= kMaxRows * kSlots && thread - kMaxRows * kSlots < live) {
    const int token = thread - kMaxRows * kSlots;
    routed.sigmoids[token] = Sigmoid(__ldcg(args.gate + token));
  }
}

/// The sum over the token's slots in the order of the fold, in every lane.
__device__ __forceinline__ float Fold(const TailArgs& args,
                                      const Slot (&slots)[kSlots],
                                      const float (&sums)[kSlots]) {
  const int lane = LaneOfThread();
  const float total = SumLanes(sums, lane);
  float fold = 0.0f;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const float d = __shfl_sync(kAllLanes, total, s * (kWarpSize / kSlots));
    if (slots[s].down != nullptr && slots[s].fold_lane == lane) {
      fold = __fmaf_rn(slots[s].weight, d, fold);
    }
  }
#pragma unroll 1
  for (int stride = 1; stride < args.num_lanes; stride *= 2) {
    fold = __fadd_rn(fold, __shfl_xor_sync(kAllLanes, fold, stride));
  }
  return fold;
}

__global__ void __launch_bounds__(kThreads, 1)
    TailKernel(const __grid_constant__ TailArgs args) {
  extern __shared__ float4 acts[];
  __shared__ Routed routed;
  LetNextStart();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = LaneOfThread();
  int h = static_cast<int>(blockIdx.x) * kWarps + thread / kWarpSize;
  const int stride = static_cast<int>(gridDim.x) * kWarps;
  // What earlier launches do not write: weights and their table.
  RowPart shared_row;
  if (h < args.hidden) {
    LoadRow(args.shared_down + int64_t{16} * h * args.shared_octets,
            args.shared_octets, shared_row);
  }
#pragma unroll 1
  for (int e = thread; e < args.num_experts; e += kThreads) {
    const int32_t local = args.global_to_local[e];
    routed.downs[e] = local < 0
                          ? nullptr
                          : static_cast<const char*>(args.experts[local].down);
  }
  __syncthreads();
  DependencyWait();

  const int live = __ldcg(args.live);
  if (live <= 0) return;
  const int expert_planes = 2 * args.top_k * args.octets;
  const int token_planes = expert_planes + 2 * args.shared_octets;
  ListSlots(args, live, routed);
  BringActs(args, live, token_planes, acts);
  __syncthreads();

  RowPart rows[kSlots];
  const auto load = [&](int token, int row, int s) {
    const char* down = routed.slots[token][s].down;
    if (down != nullptr) {
      LoadRow(down + int64_t{16} * row * args.octets, args.octets, rows[s]);
    }
  };
  if (h < args.hidden) {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) load(0, h, s);
  }
  WaitForCopies();
  __syncthreads();
  int token = 0;
#pragma unroll 1
  while (h < args.hidden) {
    // The next token's rows, or the first one's of the next row, are on their
    // way while these are summed.
    const bool last = token + 1 == live;
    const int next_token = last ? 0 : token + 1;
    const int next_h = last ? h + stride : h;
    const float4* planes = acts + token * token_planes;
    const int64_t at = static_cast<int64_t>(token) * args.hidden + h;
    const float residual = lane == 0 ? __ldcg(args.residual + at) : 0.0f;
    float sums[kSlots];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      sums[s] = 0.0f;
      if (routed.slots[token][s].down != nullptr) {
        sums[s] = PartOfDot(rows[s], planes + 2 * s * args.octets, args.octets);
      }
      if (next_h < args.hidden) load(next_token, next_h, s);
    }
    const float shared = SumLanes(
        PartOfDot(shared_row, planes + expert_planes, args.shared_octets),
        lane);
    if (last && next_h < args.hidden) {
      LoadRow(args.shared_down + int64_t{16} * next_h * args.shared_octets,
              args.shared_octets, shared_row);
    }
    const float fold = Fold(args, routed.slots[token], sums);
    if (lane == 0) {
      const float gated = __fmaf_rn(routed.sigmoids[token], shared, fold);
      args.out[at] = __fadd_rn(residual, gated);
    }
    token = next_token;
    h = next_h;
  }
}

bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

size_t ActBytes(const MoeTailArgs& args) {
  return static_cast<size_t>(args.add.rows.capacity *
                             (args.combine.top_k * args.down.table.width +
                              args.shared_down.weight.cols)) *
         sizeof(float);
}

}  // namespace

bool TakesMoeTail(const MoeTailArgs& op) {
  const ExpertTableView& table = op.down.table;
  const WeightView& shared = op.shared_down.weight;
  const auto fits = [](int64_t width) {
    return width > 0 && width % 8 == 0 && width <= kMaxWidth;
  };
  return table.down_dtype == tensor::DType::kBF16 &&
         shared.dtype == tensor::DType::kBF16 &&
         op.shared_down.x.dtype == tensor::DType::kF32 &&
         op.add.rows.capacity <= kMaxRows && op.combine.top_k <= kSlots &&
         table.num_experts <= kMaxExperts && fits(table.width) &&
         fits(shared.cols) && shared.rows == table.hidden &&
         op.combine.width == table.hidden &&
         op.combine.inverse_perm == nullptr &&
         op.combine.num_lanes <= kWarpSize && IsAligned(shared.data) &&
         IsAligned(op.down.act) && IsAligned(op.shared_down.x.data);
}

Status RunMoeTail(Stream stream, int num_sms, const MoeTailArgs& op) {
  const ExpertTableView& table = op.down.table;
  if (op.add.rows.capacity == 0 || table.hidden == 0) return kOk;
  TailArgs args = {};
  args.live = op.add.rows.live;
  args.global_to_local = table.global_to_local;
  args.experts = table.experts;
  args.shared_down = static_cast<const char*>(op.shared_down.weight.data);
  args.ids = op.combine.ids;
  args.weights = op.combine.weights;
  args.act = op.down.act;
  args.shared_act = static_cast<const float*>(op.shared_down.x.data);
  args.gate = op.gated.gate;
  args.residual = op.add.residual;
  args.out = op.add.out;
  args.hidden = static_cast<int>(table.hidden);
  args.octets = static_cast<int>(table.width / 8);
  args.shared_octets = static_cast<int>(op.shared_down.weight.cols / 8);
  args.top_k = static_cast<int>(op.combine.top_k);
  args.num_experts = static_cast<int>(table.num_experts);
  args.lanes = static_cast<int>(op.combine.lanes);
  args.first_lane = static_cast<int>(op.combine.first_lane);
  args.num_lanes = static_cast<int>(op.combine.num_lanes);
  const int64_t blocks =
      std::min<int64_t>(num_sms, (table.hidden + kWarps - 1) / kWarps);
  const size_t bytes = ActBytes(op);
  if (bytes > (size_t{40} << 10)) {  // beside the static part
    const Status status = cudaFuncSetAttribute(
        &TailKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(bytes));
    if (status != kOk) return status;
  }
  return Launch(&TailKernel, dim3(static_cast<unsigned>(blocks)),
                dim3(kThreads), bytes, stream, args);
}

}  // namespace signet::backend::gpu
