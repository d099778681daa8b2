// Down of the selected experts and of the shared one, the canonical fold, the
// gated add and the residual: one launch. A warp a row of the hidden state: it
// takes that row of every down matrix and has the element of every sum that
// follows in its lanes. The dots have the order of IndexedDown and of the plain
// product, the fold that of Combine.

#include <cstdint>

#include "backend/gpu/decode_moe_tail.h"
#include "backend/gpu/dot.cuh"
#include "backend/gpu/float_config.h"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/math.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kWarps = kMoeTailThreads / kWarpSize;
constexpr int kMaxTailTopK = 32;  // ChooseMoeTail allows no more

struct TailArgs {
  const int32_t* live;
  int capacity;
  int top_k;
  int padded_slots;  // MoeTailSlots
  int hidden;
  int octets;         // of an expert's row
  int shared_octets;  // of the shared expert's row
  int num_experts;
  int lanes;
  int first_lane;
  int num_lanes;
  const int32_t* global_to_local;  // [E]
  const ExpertPointers* experts;   // [E_r]
  const void* shared_down;         // [H, I_shared]
  const int32_t* ids;              // [S]
  const float* weights;            // [S]
  const float* act;                // [S, I]
  const float* shared_act;         // [B, I_shared]
  const float* gate;               // [B, 1]
  const float* residual;           // [B, H]
  float* out;                      // [B, H]
};

/// A slot that this rank computes, or none: down is null.
struct TailSlot {
  const char* down;
  float weight;
  int fold_lane;
  int act;  // the slot among its token's
};
static_assert(sizeof(TailSlot) == 24);

/// Shared memory, in this order; ChooseMoeTail counts the bytes.
struct TailMemory {
  float4* acts;        // per token and row two planes of octets, low and high
  const char** downs;  // [E], null: foreign
  TailSlot* slots;     // [capacity, padded_slots], those of a token first
  float* sigmoids;     // [capacity]
  int token_planes;    // float4 of a token's acts
};

__device__ __forceinline__ TailMemory Layout(const TailArgs& args,
                                             float4* memory) {
  TailMemory m;
  m.token_planes = 2 * (args.top_k * args.octets + args.shared_octets);
  m.acts = memory;
  m.downs =
      reinterpret_cast<const char**>(memory + args.capacity * m.token_planes);
  m.slots = reinterpret_cast<TailSlot*>(m.downs + args.num_experts);
  m.sigmoids =
      reinterpret_cast<float*>(m.slots + args.capacity * args.padded_slots);
  return m;
}

/// Asks for rows of `octets` octets as planes: row i of token t = i /
/// rows_per_token lies `first` float4 into the token's.
__device__ __forceinline__ void BringActs(const TailMemory& m,
                                          const float* from, int num_rows,
                                          int rows_per_token, int octets,
                                          int first) {
  const int count = num_rows * octets;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kMoeTailThreads) {
    const int row = i / octets;
    float4* planes = m.acts + row / rows_per_token * m.token_planes + first +
                     row % rows_per_token * 2 * octets + i % octets;
    const float* octet = from + static_cast<int64_t>(8) * i;
    CopyToShared(octet, planes);
    CopyToShared(octet + 4, planes + octets);
  }
}

/// The slots of live tokens that are computed here, each token's in order of k.
/// False if a matrix lies at another than a multiple of 16 bytes.
__device__ __forceinline__ bool ListSlots(const TailArgs& args,
                                          const TailMemory& m, int live) {
  bool vectors = true;
  const auto down_of = [&](int id) {
    return id < 0 ? static_cast<const char*>(nullptr) : m.downs[id];
  };
  for (int s = static_cast<int>(threadIdx.x); s < live * args.top_k;
       s += kMoeTailThreads) {
    const int token = s / args.top_k;
    const int k = s % args.top_k;
    const int32_t* ids = args.ids + token * args.top_k;
    const int32_t id = __ldcg(ids + k);
    const float weight = __ldcg(args.weights + s);
    const char* down = down_of(id);
    if (down == nullptr) continue;
    int at = token * args.padded_slots;
    // All ids at once: one trip to the second-level cache.
#pragma unroll 16
    for (int before = 0; before < kMaxTailTopK; ++before) {
      const int32_t other = before < k ? __ldcg(ids + before) : -1;
      at += down_of(other) != nullptr ? 1 : 0;
    }
    const int lane = static_cast<int>(static_cast<int64_t>(id) * args.lanes /
                                      args.num_experts);
    m.slots[at] = {down, weight, lane - args.first_lane, k};
    vectors = vectors && reinterpret_cast<uintptr_t>(down) % 16 == 0;
  }
  return vectors;
}

/// Eight bf16 at any address.
__device__ __forceinline__ uint4 LoadOddWeights(const char* from) {
  const auto* half = reinterpret_cast<const uint16_t*>(from);
  const auto pair = [&](int i) {
    return static_cast<uint32_t>(half[2 * i]) |
           static_cast<uint32_t>(half[2 * i + 1]) << 16;
  };
  return make_uint4(pair(0), pair(1), pair(2), pair(3));
}

/// This lane's part of a row: octets lane, lane + 32, ...
template <int kChunks>
__device__ __forceinline__ void LoadRow(const char* row, int octets,
                                        bool vectors, uint4 (&octet)[kChunks]) {
  const int lane = LaneOfThread();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int q = c * kWarpSize + lane;
    if (q < octets) {
      const char* from = row + static_cast<int64_t>(q) * 16;
      octet[c] = vectors ? LoadWeights(from) : LoadOddWeights(from);
    }
  }
}

/// This lane's part of a dot product.
template <int kChunks>
__device__ __forceinline__ float PartOfDot(const uint4 (&octet)[kChunks],
                                           const float4* planes, int octets) {
  const int lane = LaneOfThread();
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int q = c * kWarpSize + lane;
    if (q < octets) {
      const float4 low = VectorWeights::Half<0>(octet[c]);
      const float4 high = VectorWeights::Half<1>(octet[c]);
      const float4 x = planes[q];
      const float4 y = planes[octets + q];
      sum = __fmaf_rn(low.x, x.x, sum);
      sum = __fmaf_rn(low.y, x.y, sum);
      sum = __fmaf_rn(low.z, x.z, sum);
      sum = __fmaf_rn(low.w, x.w, sum);
      sum = __fmaf_rn(high.x, y.x, sum);
      sum = __fmaf_rn(high.y, y.y, sum);
      sum = __fmaf_rn(high.z, y.z, sum);
      sum = __fmaf_rn(high.w, y.w, sum);
    }
  }
  return sum;
}

/// Row `h` of every live token. `shared_row` holds that row of the shared
/// expert's down.
template <int kChunks>
__device__ __forceinline__ void TailRow(const TailArgs& args,
                                        const TailMemory& m, int live, int h,
                                        bool vectors,
                                        const uint4 (&shared_row)[kChunks]) {
  constexpr int kStep = MoeTailStep(kChunks);
  constexpr int kLanesPerSlot = kWarpSize / kStep;
  const int lane = LaneOfThread();
  const int steps_per_token = args.padded_slots / kStep;
  const int steps = live * steps_per_token;
  const int64_t row_at = static_cast<int64_t>(h) * args.octets * 16;

  uint4 rows[kStep][kChunks];
#pragma unroll
  for (int i = 0; i < kStep; ++i) {
    const char* down = m.slots[i].down;
    if (down != nullptr) {
      LoadRow(down + row_at, args.octets, vectors, rows[i]);
    }
  }
  int token = 0;
  int step_of_token = 0;
  float fold = 0.0f;
  float residual = 0.0f;
  for (int step = 0; step < steps; ++step) {
    const float4* acts = m.acts + token * m.token_planes;
    const TailSlot* slots = m.slots + step * kStep;
    const int64_t at = static_cast<int64_t>(token) * args.hidden + h;
    if (step_of_token == 0 && lane == 0) residual = __ldcg(args.residual + at);
    float sums[kStep];
#pragma unroll
    for (int i = 0; i < kStep; ++i) {
      sums[i] = 0.0f;
      if (slots[i].down != nullptr) {
        sums[i] = PartOfDot(rows[i], acts + slots[i].act * 2 * args.octets,
                            args.octets);
      }
      // The next step's row is on its way while this one is summed.
      if (step + 1 < steps) {
        const char* down = slots[kStep + i].down;
        if (down != nullptr) {
          LoadRow(down + row_at, args.octets, vectors, rows[i]);
        }
      }
    }
    const float total = SumLanes(sums, lane);
    // Lane l of the warp is lane l of the fold.
#pragma unroll
    for (int i = 0; i < kStep; ++i) {
      const float d = __shfl_sync(kAllLanes, total, i * kLanesPerSlot);
      if (slots[i].down != nullptr && slots[i].fold_lane == lane) {
        fold = __fmaf_rn(slots[i].weight, d, fold);
      }
    }
    if (++step_of_token < steps_per_token) continue;

    for (int stride = 1; stride < args.num_lanes; stride *= 2) {
      fold = __fadd_rn(fold, __shfl_xor_sync(kAllLanes, fold, stride));
    }
    const float shared =
        SumLanes(PartOfDot(shared_row, acts + args.top_k * 2 * args.octets,
                           args.shared_octets),
                 lane);
    if (lane == 0) {
      const float gated = __fmaf_rn(m.sigmoids[token], shared, fold);
      args.out[at] = __fadd_rn(residual, gated);
    }
    fold = 0.0f;
    step_of_token = 0;
    ++token;
  }
}

template <int kChunks>
__global__ void __launch_bounds__(kMoeTailThreads, 1)
    MoeTailKernel(const __grid_constant__ TailArgs args) {
  extern __shared__ float4 memory[];
  const int thread = static_cast<int>(threadIdx.x);
  const TailMemory m = Layout(args, memory);
  const auto* shared_down = static_cast<const char*>(args.shared_down);
  const int64_t shared_bytes = static_cast<int64_t>(args.shared_octets) * 16;

  // What earlier launches do not write: weights and their tables.
  const int first = static_cast<int>(blockIdx.x) * kWarps + thread / kWarpSize;
  uint4 shared_row[kChunks];
  if (first < args.hidden) {
    LoadRow(shared_down + first * shared_bytes, args.shared_octets, true,
            shared_row);
  }
  for (int e = thread; e < args.num_experts; e += kMoeTailThreads) {
    const int32_t local = args.global_to_local[e];
    m.downs[e] = local < 0 ? nullptr
                           : static_cast<const char*>(args.experts[local].down);
  }
  for (int s = thread; s < args.capacity * args.padded_slots;
       s += kMoeTailThreads) {
    m.slots[s] = {};
  }
  __syncthreads();
  DependencyWait();

  const int live = __ldcg(args.live);
  if (live <= 0) return;
  BringActs(m, args.act, live * args.top_k, args.top_k, args.octets, 0);
  BringActs(m, args.shared_act, live, 1, args.shared_octets,
            2 * args.top_k * args.octets);
  if (thread < live) m.sigmoids[thread] = Sigmoid(__ldcg(args.gate + thread));
  const bool vectors = ListSlots(args, m, live);
  WaitForCopies();
  const bool all_vectors = __syncthreads_and(vectors) != 0;

  const int stride = static_cast<int>(gridDim.x) * kWarps;
  for (int h = first; h < args.hidden; h += stride) {
    if (h != first) {
      LoadRow(shared_down + h * shared_bytes, args.shared_octets, true,
              shared_row);
    }
    TailRow(args, m, live, h, all_vectors, shared_row);
  }
}

bool Aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

template <int kChunks>
Status Run(Stream stream, const MoeTailConfig& config, const TailArgs& args) {
  auto* kernel = &MoeTailKernel<kChunks>;
  if (config.shared_bytes > (size_t{48} << 10)) {
    const Status status = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(config.shared_bytes));
    if (status != kOk) return status;
  }
  return LaunchRows(args.capacity, kernel,
                    dim3(static_cast<unsigned>(config.blocks)),
                    dim3(kMoeTailThreads), config.shared_bytes, stream, args);
}

}  // namespace

void GpuKernels::MoeTail(LaunchKey key, const MoeTailArgs& op) {
  if (TakesMoeTail(op)) return Check(RunMoeTail(stream_, num_sms_, op));
  const ExpertTableView& table = op.down.table;
  const WeightView& shared = op.shared_down.weight;
  MoeTailDesc desc;
  desc.capacity = op.add.rows.capacity;
  desc.top_k = op.combine.top_k;
  desc.num_experts = table.num_experts;
  desc.hidden = table.hidden;
  desc.width = table.width;
  desc.shared_width = shared.cols;
  desc.bf16 = table.down_dtype == tensor::DType::kBF16 &&
              shared.dtype == tensor::DType::kBF16 &&
              op.shared_down.x.dtype == tensor::DType::kF32;
  desc.vectors = Aligned(shared.data) && Aligned(op.down.act) &&
                 Aligned(op.shared_down.x.data);
  desc.num_sms = num_sms_;
  const MoeTailConfig config = ChooseMoeTail(desc);
  const bool one_shape =
      shared.rows == table.hidden && op.combine.width == table.hidden &&
      op.combine.inverse_perm == nullptr && op.combine.num_lanes <= kWarpSize;
  if (config.chunks == 0 || !one_shape) {
    IndexedDown(key, op.down);
    Projection(key, op.shared_down);
    Combine(key, op.combine);
    IdentityReduce(key, op.reduce);
    GatedAdd(key, op.gated);
    ResidualAdd(key, op.add);
    return;
  }
  if (config.blocks == 0 || desc.capacity == 0) return;
  TailArgs args = {};
  args.live = op.add.rows.live;
  args.capacity = static_cast<int>(desc.capacity);
  args.top_k = static_cast<int>(desc.top_k);
  args.padded_slots = static_cast<int>(MoeTailSlots(desc.top_k, config.chunks));
  args.hidden = static_cast<int>(table.hidden);
  args.octets = static_cast<int>(table.width / 8);
  args.shared_octets = static_cast<int>(shared.cols / 8);
  args.num_experts = static_cast<int>(table.num_experts);
  args.lanes = static_cast<int>(op.combine.lanes);
  args.first_lane = static_cast<int>(op.combine.first_lane);
  args.num_lanes = static_cast<int>(op.combine.num_lanes);
  args.global_to_local = table.global_to_local;
  args.experts = table.experts;
  args.shared_down = shared.data;
  args.ids = op.combine.ids;
  args.weights = op.combine.weights;
  args.act = op.down.act;
  args.shared_act = static_cast<const float*>(op.shared_down.x.data);
  args.gate = op.gated.gate;
  args.residual = op.add.residual;
  args.out = op.add.out;
  Check(config.chunks == 2 ? Run<2>(stream_, config, args)
                           : Run<4>(stream_, config, args));
}

}  // namespace signet::backend::gpu
