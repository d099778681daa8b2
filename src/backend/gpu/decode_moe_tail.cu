#include <algorithm>

#include "backend/gpu/decode_moe_tail.h"
#include "backend/gpu/math.cuh"
#include "backend/gpu/row_dot.cuh"
#include "backend/gpu/sm90_bulk.cuh"

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
constexpr int kRows = 2;    // of a warp
constexpr int kTokens = 2;  // of a block
constexpr int kHalf = kWarpSize / 2;

struct TailArgs {
  const int32_t* live;
  const int32_t* global_to_local;  // [E]
  const ExpertPointers* experts;   // [E_r]
  const char* shared_down;         // [H, I_shared]
  const DownSlot* slots;           // [S], or null: from ids and weights
  const int32_t* ids;              // [S]
  const float* weights;            // [S]
  const float* act;                // [S, I]
  const float* shared_act;         // [B, I_shared]
  const float* gate;               // [B, 1]
  const float* residual;           // [B, H]
  float* out;                      // [B, H]
  int capacity;                    // B
  int hidden;
  int octets;         // of an expert's row
  int shared_octets;  // of the shared expert's row
  int top_k;
  int num_experts;
  int lanes;
  int first_lane;
  int num_lanes;
};

/// Groups of kTokens tokens that blocks deal with.
__host__ __device__ constexpr int GroupsOf(int tokens) {
  return tokens > kTokens ? (tokens + kTokens - 1) / kTokens : 1;
}

struct Listed {
  const char* downs[kMaxExperts];  // null: foreign
  DownSlot slots[kMaxRows][kSlots];
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
  /// Adds the product with an input row.
  __device__ __forceinline__ void Dot(const float4* row, int octets_of_row,
                                      float (&sums)[kRows]) const {
    const int lane = LaneOfThread();
    // Every other four lanes read the high half first: eight lanes then meet
    // all banks.
    const int first_half = lane / 4 % 2;
#pragma unroll
    for (int j = 0; j < kOctets; ++j) {
      const int q = j * kWarpSize + lane;
      if (q < octets_of_row) {
        const float4 first = row[2 * q + first_half];
        const float4 second = row[2 * q + 1 - first_half];
        const float4 low = first_half == 0 ? first : second;
        const float4 high = first_half == 0 ? second : first;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          sums[r] = AddOctet(octets[r][j], low, high, sums[r]);
        }
      }
    }
  }
};

/// The activations of a block's tokens in shared memory: the rows of slots,
/// then those of the shared expert.
struct Inputs {
  float4* slots;
  float4* shared;
  int of_slot;    // float4 of a row
  int of_token;   // of a token's rows
  int of_shared;  // of the shared expert's row

  __device__ __forceinline__ Inputs(const TailArgs& args, float4* memory)
      : slots(memory),
        shared(memory +
               min(args.capacity, kTokens) * args.top_k * 2 * args.octets),
        of_slot(2 * args.octets),
        of_token(args.top_k * of_slot),
        of_shared(2 * args.shared_octets) {}

  /// Asks for tokens [first, first + count). One thread calls it.
  __device__ __forceinline__ void Start(const TailArgs& args, int first,
                                        int count, BulkCopies& copies) const {
    const auto bytes = [](int pieces) {
      return static_cast<uint32_t>(pieces) * 16u;
    };
    const uint32_t of_slots = bytes(count * of_token);
    const uint32_t of_shareds = bytes(count * of_shared);
    copies.Expect(of_slots + of_shareds);
    copies.Start(slots,
                 reinterpret_cast<const float4*>(args.act) + first * of_token,
                 of_slots);
    copies.Start(
        shared,
        reinterpret_cast<const float4*>(args.shared_act) + first * of_shared,
        of_shareds);
  }
};

/// The slots of the live tokens, a thread each: as they were listed with the
/// route, or from ids and the table.
__device__ __forceinline__ void ListSlots(const TailArgs& args, int live,
                                          Listed& listed) {
  const int thread = static_cast<int>(threadIdx.x);
  const int token = thread / kSlots;
  const int k = thread % kSlots;
  const bool has_slot = token < live && k < args.top_k;
  int32_t id = -1;
  DownSlot slot = {};
  if (args.slots != nullptr) {
    if (has_slot) {
      const int4 bits = __ldcg(
          reinterpret_cast<const int4*>(args.slots + token * args.top_k + k));
      slot = *reinterpret_cast<const DownSlot*>(&bits);
    }
    if (token < live) listed.slots[token][k] = slot;
    return;
  }
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

/// The sum over the token's slots in the order of the fold, of row r in the
/// first lane of half r of the warp.
__device__ __forceinline__ float Fold(const TailArgs& args,
                                      const DownSlot (&slots)[kSlots],
                                      const float (&sums)[kRows * kSlots]) {
  static_assert(kRows == 2 && kRows * kSlots * 2 == kWarpSize);
  const int lane = LaneOfThread();
  const int in_half = lane % kHalf;
  // In lanes 2s and 2s + 1 of half r that of slot s.
  const float total = SumLanes(sums, lane);
  float fold = 0.0f;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const float d = __shfl_sync(kAllLanes, total, 2 * s, kHalf);
    const float added = __fmaf_rn(slots[s].weight, d, fold);
    const bool adds = slots[s].down != nullptr && slots[s].fold_lane == in_half;
    fold = adds ? added : fold;
  }
#pragma unroll 1
  for (int stride = 1; stride < args.num_lanes; stride *= 2) {
    fold = __fadd_rn(fold, __shfl_xor_sync(kAllLanes, fold, stride));
  }
  return fold;
}

/// An item is kRows rows of a token. Blocks deal with kTokens tokens each, so
/// that none has to bring all activations.
__global__ void __launch_bounds__(kThreads, 1)
    TailKernel(const __grid_constant__ TailArgs args) {
  extern __shared__ float4 memory[];
  __shared__ Listed listed;
  __shared__ BulkCopies copies;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = LaneOfThread();
  // The last rows are taken again where they do not fill an item.
  const int last_first = args.hidden - kRows;
  const int live = __ldcg(args.live);
  const int groups = GroupsOf(args.capacity > kTokens ? live : 1);
  const int group = static_cast<int>(blockIdx.x) % groups;
  const int blocks =
      (static_cast<int>(gridDim.x) - group + groups - 1) / groups;
  int h = kRows *
          (thread / kWarpSize * blocks + static_cast<int>(blockIdx.x) / groups);
  const int stride = kRows * kWarps * blocks;
  const int64_t shared_bytes = int64_t{16} * args.shared_octets;
  const auto load_shared = [&](int row, Part& part) {
    part.Load(args.shared_down + min(row, last_first) * shared_bytes,
              shared_bytes, args.shared_octets);
  };
  Part shared_part;
  if (h < args.hidden) load_shared(h, shared_part);
  // A route is there before the launch after it starts (route.cu,
  // decode_gate_up.cu, moe_indexed.cuh).
  ListSlots(args, live, listed);
  if (thread == 0) copies.Open();
  __syncthreads();

  const Inputs inputs(args, memory);
  const int64_t bytes = int64_t{16} * args.octets;
  Part parts[kSlots];
  // Without branches, so that slots go side by side: a slot that is none reads
  // what it may, and Fold leaves it out.
  const auto load = [&](int token, int row, int s) {
    const char* down = listed.slots[token][s].down;
    const int64_t apart = down != nullptr ? bytes : 0;
    const char* from = down != nullptr ? down : args.shared_down;
    parts[s].Load(from + min(row, last_first) * apart, apart, args.octets);
  };
  const int first_token = group * kTokens;
  const int end_token = min(live, first_token + kTokens);
  if (h < args.hidden && live > 0) {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) load(first_token, h, s);
  }
  DependencyWait();

  if (live <= 0) return;
  if (thread == 0) {
    inputs.Start(args, first_token, end_token - first_token, copies);
  }
  copies.Await();
  int token = first_token;
#pragma unroll 1
  while (h < args.hidden) {
    // The next token's rows, or the first one's of the next rows, are on their
    // way while these are summed.
    const bool last = token + 1 == end_token;
    const int next_token = last ? first_token : token + 1;
    const int next_h = last ? h + stride : h;
    const float4* rows = inputs.slots + (token - first_token) * inputs.of_token;
    const int row = min(h, last_first) + lane / kHalf;
    const int64_t at = static_cast<int64_t>(token) * args.hidden + row;
    const float residual = __ldcg(args.residual + at);
    const float gate = __ldcg(args.gate + token);
    float sums[kRows * kSlots];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      float dots[kRows] = {};
      parts[s].Dot(rows + (s < args.top_k ? s * inputs.of_slot : 0),
                   args.octets, dots);
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r * kSlots + s] = dots[r];
      if (next_h < args.hidden) load(next_token, next_h, s);
    }
    float shared[kRows] = {};
    shared_part.Dot(inputs.shared + (token - first_token) * inputs.of_shared,
                    args.shared_octets, shared);
    if (last && next_h < args.hidden) load_shared(next_h, shared_part);
    const float fold = Fold(args, listed.slots[token], sums);
    const float gated = __fmaf_rn(Sigmoid(gate), SumLanes(shared, lane), fold);
    // A row that is taken again is written by its own item alone: the residual
    // may lie in the same memory.
    if (lane % kHalf == 0 && row >= h) {
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
  return static_cast<size_t>(
             std::min<int64_t>(args.add.rows.capacity, kTokens) *
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
         op.combine.inverse_perm == nullptr && op.combine.num_lanes <= kHalf &&
         IsAligned(shared.data) && IsAligned(op.down.act) &&
         IsAligned(op.shared_down.x.data) &&
         table.width <= table.hidden * shared.cols;
}

Status RunMoeTail(Stream stream, int num_sms, const MoeTailArgs& op,
                  const DownSlots& down) {
  const ExpertTableView& table = op.down.table;
  if (op.add.rows.capacity == 0 || table.hidden == 0) return kOk;
  TailArgs args = {};
  args.live = op.add.rows.live;
  args.global_to_local = table.global_to_local;
  args.experts = table.experts;
  args.shared_down = static_cast<const char*>(op.shared_down.weight.data);
  args.slots = down.slots;
  args.ids = op.combine.ids;
  args.weights = op.combine.weights;
  args.act = op.down.act;
  args.shared_act = static_cast<const float*>(op.shared_down.x.data);
  args.gate = op.gated.gate;
  args.residual = op.add.residual;
  args.out = op.add.out;
  args.capacity = static_cast<int>(op.add.rows.capacity);
  args.hidden = static_cast<int>(table.hidden);
  args.octets = static_cast<int>(table.width / 8);
  args.shared_octets = static_cast<int>(op.shared_down.weight.cols / 8);
  args.top_k = static_cast<int>(op.combine.top_k);
  args.num_experts = static_cast<int>(table.num_experts);
  args.lanes = static_cast<int>(op.combine.lanes);
  args.first_lane = static_cast<int>(op.combine.first_lane);
  args.num_lanes = static_cast<int>(op.combine.num_lanes);
  const int64_t groups = GroupsOf(args.capacity);
  const int64_t blocks = std::max<int64_t>(
      std::min<int64_t>(num_sms, (table.hidden + kRows - 1) / kRows * groups),
      groups);
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
