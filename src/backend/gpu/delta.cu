// The gated delta rule: by chunks where DeltaConfig says so, else token by
// token, a block with a slice of one head's state in registers. The latter is
// kChunked, too, for heads the chunked kernels are not made for: the same
// recurrence over the rows of the call. DeltaRuleArgs::scratch, planned for the
// CPU's chunks, stays unused.

#include "backend/gpu/delta.cuh"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/sm80_delta_chunk.cuh"
#include "backend/gpu/stored_bits.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kThreads = kDeltaWarps * kWarpSize;

// Grid: slice, value head, sequence. kWhole: key_dim is kRows * kDeltaWarps and
// value_dim a multiple of kDeltaColumns.
template <int kRows, bool kWhole>
__global__ void __launch_bounds__(kThreads, kWhole ? 4 : 1)
    StepSequences(const DeltaRuleArgs args) {
  constexpr int kKeys = kRows * kDeltaWarps;
  constexpr int kPadded = (kKeys + kWarpValues - 1) / kWarpValues * kWarpValues;
  alignas(16) __shared__ float qk[2 * kPadded];  // query, key
  __shared__ DeltaGate shared_gate;
  __shared__ PartialSums partial;

  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  const int64_t head = blockIdx.y;
  const int dk = kWhole ? kKeys : static_cast<int>(args.key_dim);
  const int dv = static_cast<int>(args.value_dim);
  const int column = static_cast<int>(blockIdx.x) * kDeltaColumns + lane;
  const bool has_column = kWhole || column < dv;
  const uint32_t a_log_bits = LoadBits(args.a_log, head);
  const uint32_t dt_bias_bits = LoadBits(args.dt_bias, head);
  DependencyWait();

  const int64_t first = blockIdx.z;
  const auto [live, from_start, slot] = FindRow(args.rows, first);
  if (!live) return;
  const int64_t end =
      args.form == DeltaForm::kChunked ? *args.rows.live : first + 1;
  float* state =
      args.state + (slot * args.value_heads + head) * dk * dv + column;
  const auto has_row = [&](int i) { return kWhole || warp * kRows + i < dk; };
  float s[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    s[i] = !from_start && has_column && has_row(i)
               ? state[(warp * kRows + i) * dv]
               : 0.0f;
  }
  const float a_log = FromBits(a_log_bits, args.a_log.dtype);
  const float dt_bias = FromBits(dt_bias_bits, args.dt_bias.dtype);

  const int64_t key_head = head / (args.value_heads / args.key_heads);
  const int64_t width = 2 * args.key_heads * dk + args.value_heads * dv;
  for (int64_t row = first; row < end; ++row) {
    const float* qkv = args.qkv + row * width;
#pragma unroll
    for (int p = 0; p < (2 * kPadded + kThreads - 1) / kThreads; ++p) {
      const int at = threadIdx.x + p * kThreads;
      const bool is_key = at >= kPadded;
      const int i = is_key ? at - kPadded : at;
      if (at >= 2 * kPadded) break;
      const int64_t from = ((is_key ? args.key_heads : 0) + key_head) * dk + i;
      qk[at] = i < dk ? qkv[from] : 0.0f;
    }
    const float v =
        has_column ? qkv[2 * args.key_heads * dk + head * dv + column] : 0.0f;
    const int64_t at = row * args.value_heads + head;
    if (warp == 1) {
      const DeltaGate gate = GateOf(args.b[at], args.a[at], a_log, dt_bias);
      if (lane == 0) shared_gate = gate;
    }
    // Orders these writes, and the reads of `partial` a token ago, too.
    __syncthreads();
    const DeltaGate gate = shared_gate;
    const float* q = qk;
    const float* k = qk + kPadded;
    const KeyFactors factors = FactorsOf<kPadded>(q, k, static_cast<float>(dk));
    const float out = StepColumn<kRows>(s, q + warp * kRows, k + warp * kRows,
                                        factors, gate, v, warp, lane, partial);
    if (warp == 0 && has_column) args.out[at * dv + column] = out;
  }

#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (has_column && has_row(i)) state[(warp * kRows + i) * dv] = s[i];
  }
}

// The instance of a configuration.
using Kernel = void (*)(DeltaRuleArgs);
Kernel KernelOf(const DeltaConfig& config) {
  switch (config.rows_per_warp) {
    case 4:
      return StepSequences<4, false>;
    case 16:
      return config.whole ? StepSequences<16, true> : StepSequences<16, false>;
    case 32:
      return StepSequences<32, false>;
    default:
      return StepSequences<64, false>;
  }
}

// Launches that leave chunks for each other in `scratch`.
Status RunChunks(Stream stream, const DeltaRuleArgs& args,
                 const DeltaConfig& config, void* scratch) {
  ChunkSegment segment;
  segment.count = config.chunks;
  segment.keys = static_cast<ChunkKeys*>(scratch);
  segment.heads = reinterpret_cast<ChunkHead*>(segment.keys +
                                               config.chunks * args.key_heads);
  for (int64_t i = 0; i < config.segments; ++i) {
    segment.first = i * config.chunks;
    Status status = MakeTriangles(stream, args, segment);
    if (status != kOk) return status;
    status = WalkChunks(stream, args, segment, config.slices);
    if (status != kOk) return status;
  }
  return kOk;
}

}  // namespace

void GpuKernels::DeltaRule(LaunchKey, const DeltaRuleArgs& args) {
  const DeltaConfig config =
      ConfigOf(DeltaDesc{.form = args.form,
                         .capacity = args.rows.capacity,
                         .key_heads = args.key_heads,
                         .value_heads = args.value_heads,
                         .key_dim = args.key_dim,
                         .value_dim = args.value_dim,
                         .aligned = Aligned16({args.qkv, args.state, args.out}),
                         .scratch_bytes = kSplitBytes});
  if (config.chunks > 0) {
    Check(RunChunks(stream_, args, config, scratch_));
    return;
  }
  const dim3 grid(static_cast<unsigned>(config.slices),
                  static_cast<unsigned>(args.value_heads),
                  static_cast<unsigned>(config.calls));
  Check(Launch(KernelOf(config), grid, kThreads, 0, stream_, args));
}

}  // namespace signet::backend::gpu
