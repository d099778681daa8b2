#include <algorithm>

#include "backend/gpu/decode_moe_tail.h"
#include "backend/gpu/math.cuh"
#include "backend/gpu/row_dot.cuh"

namespace signet::backend::gpu {
namespace {

// Few warps of two rows each: the activations pass through shared memory once
// for both.
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kMaxRows = 8;
constexpr int kSlots = 8;   // of a token
constexpr int kOctets = 2;  // of a row, a lane
constexpr int kMaxWidth = 8 * kWarpSize * kOctets;
constexpr int kMaxExperts = 512;
constexpr int kRows = 2;  // of a warp

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

struct Listed {
  const char* downs[kMaxExperts];  // null: foreign
  Slot slots[kMaxRows][kSlots];
  float sigmoids[kMaxRows];
};

/// A lane's part of kRows rows.
struct Part {
  uint4 octets[kRows][kOctets];

  /// `rows` apart by `row_bytes`, from `first` on.
  __device__ __forceinline__ void Load(const char* first, int64_t row_bytes,
                                       int octets_of_row) {
    const int lane = LaneOfThread();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int j = 0; j < kOctets; ++j) {
        const int q = j * kWarpSize + lane;
        if (q < octets_of_row) {
          octets[r][j] = LoadWeights(first + r * row_bytes + int64_t{16} * q);
        }
      }
    }
  }
  /// Adds the product with an input row of two planes.
  __device__ __forceinline__ void Dot(const float4* planes, int octets_of_row,
                                      float (&sums)[kRows]) const {
    const int lane = LaneOfThread();
#pragma unroll
    for (int j = 0; j < kOctets; ++j) {
      const int q = j * kWarpSize + lane;
      if (q < octets_of_row) {
        const float4 low = planes[q];
        const float4 high = planes[octets_of_row + q];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          sums[r] = AddOctet(octets[r][j], low, high, sums[r]);
        }
      }
    }
  }
};

/// The activations of the live tokens as planes: per token its slots, then the
/// shared expert.
__device__ __forceinline__ void BringActs(const TailArgs& args, int live,
                                          int token_planes, float4* acts) {
  const auto bring = [&](const float* x, int rows, int of_token, int octets,
                         int first) {
    const int pieces = 2 * octets;
    for (int i = static_cast<int>(threadIdx.x); i < rows * pieces;
         i += kThreads) {
      const int row = i / pieces;
      const int piece = i - row * pieces;
      const int token = row / of_token;
      float4* to = acts + token * token_planes + first +
                   (row - token * of_token) * pieces;
      to[piece % 2 * octets + piece / 2] =
          __ldcg(reinterpret_cast<const float4*>(x) + i);
    }
  };
  bring(args.act, live * args.top_k, args.top_k, args.octets, 0);
  bring(args.shared_act, live, 1, args.shared_octets,
        2 * args.top_k * args.octets);
}

/// The slots of the live tokens, a thread each.
__device__ __forceinline__ void ListSlots(const TailArgs& args, int live,
                                          Listed& listed) {
  const int thread = static_cast<int>(threadIdx.x);
  const int token = thread / kSlots;
  const int k = thread % kSlots;
  const bool has_slot = token < live && k < args.top_k;
  int32_t id = -1;
  Slot slot = {};
  if (has_slot) {
    const int s = token * args.top_k + k;
    id = __ldcg(args.ids + s);
    slot.weight = __ldcg(args.weights + s);
  }
  for (int e = thread; e < args.num_experts; e += kThreads) {
    const int32_t local = args.global_to_local[e];
    listed.downs[e] = local < 0
                          ? nullptr
                          : static_cast<const char*>(args.experts[local].down);
  }
  __syncthreads();
  if (token >= live) return;
  if (id >= 0) {
    slot.down = listed.downs[id];
    slot.fold_lane = id * args.lanes / args.num_experts - args.first_lane;
  }
  listed.slots[token][k] = slot;
}

/// The sum over the token's slots in the order of the fold, in the first
/// num_lanes lanes.
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

/// An item is kRows rows of a token.
__global__ void __launch_bounds__(kThreads, 1)
    TailKernel(const __grid_constant__ TailArgs args) {
  extern __shared__ float4 acts[];
  __shared__ Listed listed;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = LaneOfThread();
  // The last rows are taken again where they do not fill an item.
  const int last_first = args.hidden - kRows;
  int h = kRows * WarpOfGrid();
  const int stride = kRows * WarpsOfGrid();
  const int64_t shared_bytes = int64_t{16} * args.shared_octets;
  const auto load_shared = [&](int row, Part& part) {
    part.Load(args.shared_down + min(row, last_first) * shared_bytes,
              shared_bytes, args.shared_octets);
  };
  Part shared_part;
  if (h < args.hidden) load_shared(h, shared_part);
  // A route is there before the launch after it starts (route.cu,
  // decode_gate_up.cu, moe_indexed.cuh).
  const int live = __ldcg(args.live);
  ListSlots(args, live, listed);
  __syncthreads();

  const int expert_planes = 2 * args.top_k * args.octets;
  const int token_planes = expert_planes + 2 * args.shared_octets;
  const int64_t bytes = int64_t{16} * args.octets;
  Part parts[kSlots];
  const auto load = [&](int token, int row, int s) {
    const char* down = listed.slots[token][s].down;
    if (down != nullptr) {
      parts[s].Load(down + min(row, last_first) * bytes, bytes, args.octets);
    }
  };
  if (h < args.hidden && live > 0) {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) load(0, h, s);
  }
  DependencyWait();

  if (live <= 0) return;
  if (thread < live) {
    listed.sigmoids[thread] = Sigmoid(__ldcg(args.gate + thread));
  }
  BringActs(args, live, token_planes, acts);
  __syncthreads();
  int token = 0;
#pragma unroll 1
  while (h < args.hidden) {
    // The next token's rows, or the first one's of the next rows, are on their
    // way while these are summed.
    const bool last = token + 1 == live;
    const int next_token = last ? 0 : token + 1;
    const int next_h = last ? h + stride : h;
    const float4* planes = acts + token * token_planes;
    const int64_t at =
        static_cast<int64_t>(token) * args.hidden + min(h, last_first);
    const float residual =
        lane < kRows ? __ldcg(args.residual + at + lane) : 0.0f;
    float sums[kRows][kSlots];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      float dots[kRows] = {};
      if (listed.slots[token][s].down != nullptr) {
        parts[s].Dot(planes + 2 * s * args.octets, args.octets, dots);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r][s] = dots[r];
      if (next_h < args.hidden) load(next_token, next_h, s);
    }
    float shared[kRows] = {};
    shared_part.Dot(planes + expert_planes, args.shared_octets, shared);
    if (last && next_h < args.hidden) load_shared(next_h, shared_part);
    float result = 0.0f;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float fold =
          __shfl_sync(kAllLanes, Fold(args, listed.slots[token], sums[r]), 0);
      const float gated =
          __fmaf_rn(listed.sigmoids[token], SumLanes(shared[r], lane), fold);
      if (lane == r) result = gated;
    }
    if (lane < kRows) args.out[at + lane] = __fadd_rn(residual, result);
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
         op.combine.width == table.hidden && table.hidden >= kRows &&
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
      std::min<int64_t>(num_sms, (table.hidden + kRows - 1) / kRows);
  const size_t bytes = ActBytes(op);
  if (bytes > (size_t{40} << 10)) {  // beside the static part
    const Status status = cudaFuncSetAttribute(
        &TailKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(bytes));
    if (status != kOk) return status;
  }
  return LaunchRows(op.add.rows.capacity, &TailKernel,
                    dim3(static_cast<unsigned>(blocks)), dim3(kThreads), bytes,
                    stream, args);
}

}  // namespace signet::backend::gpu
