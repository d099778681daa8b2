// Conv, recurrent delta rule and gated norm of one token of each sequence in
// one launch, for heads of 128 and four taps. The blocks of a cluster share one
// row and one key head: each convolves the channels of that key head for
// itself, and its own columns of one value head. The first block writes the
// conv state of the shared channels once all have read it; the first block of a
// value head gathers its output and norms it. The arithmetic is that of the
// three ops, bit for bit.

#include <type_traits>

#include "backend/gpu/cluster.cuh"
#include "backend/gpu/conv.cuh"
#include "backend/gpu/delta.cuh"
#include "backend/gpu/delta_config.h"
#include "backend/gpu/gated_norm.cuh"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/stored.cuh"
#include "backend/gpu/stored_bits.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kDim = 128;
constexpr int kKeyChannels = 2 * kDim;  // query and key
constexpr int kRows = kDim / kDeltaWarps;
constexpr int kHistory = kConvTaps - 1;
static_assert(kDim == kWarpValues);

// One channel of the convolution in one row.
struct Channel {
  int index;
  Taps taps;
  float history[kHistory];
  float u;

  template <typename W>
  __device__ void LoadWeights(const ConvArgs& args) {
    taps = LoadTaps(static_cast<const W*>(args.weight.data), index);
  }
  __device__ void LoadState(const ConvArgs& args, int64_t slot,
                            bool from_start) {
    const float* state = State(args, slot);
#pragma unroll
    for (int j = 0; j < kHistory; ++j) {
      history[j] = from_start ? 0.0f : state[j];
    }
  }
  __device__ void LoadInput(const ConvArgs& args, int64_t row) {
    u = __ldcg(args.u + row * args.weight.rows + index);
  }
  __device__ float Out() const {
    return ConvSilu(taps, history[0], history[1], history[2], u);
  }
  __device__ void StoreState(const ConvArgs& args, int64_t slot) const {
    float* state = State(args, slot);
    state[0] = history[1];
    state[1] = history[2];
    state[2] = u;
  }

 private:
  __device__ float* State(const ConvArgs& args, int64_t slot) const {
    return args.state + (slot * args.weight.rows + index) * kHistory;
  }
};

// Grid: (block of the cluster, key head, row); the cluster is the first
// dimension. kColumns: value columns of a block. `rounded`: takes the output
// instead of norm.out unless it is null.
template <typename W, int kColumns>
__global__ void __launch_bounds__(kDeltaWarps* kColumns,
                                  1024 / (kDeltaWarps * kColumns))
    MixToken(const ConvArgs conv, const DeltaRuleArgs delta,
             const GatedNormArgs norm, uint16_t* rounded) {
  constexpr int kThreads = kDeltaWarps * kColumns;
  constexpr int kSlices = kDim / kColumns;  // blocks of a value head
  // The first of the threads that convolve a value channel.
  constexpr int kValueThread = kThreads > kKeyChannels ? kKeyChannels : 0;
  alignas(16) __shared__ float mixed[kKeyChannels + kColumns];
  __shared__ PartialSums partial[kColumns / kDeltaColumns];
  __shared__ DeltaGate shared_gate;
  __shared__ Mailbox<kDim> head_out;  // of the block that norms the head
  // What each lane of the norming warp keeps for itself, out of registers.
  __shared__ float4 norm_gate[kWarpSize];
  __shared__ float4 norm_weight[kWarpSize];

  const int rank = blockIdx.x;
  const int key_head = static_cast<int>(blockIdx.y);
  const int64_t row = blockIdx.z;
  const int slice = rank % kSlices;
  const int key_heads = static_cast<int>(delta.key_heads);
  const int value_heads = static_cast<int>(delta.value_heads);
  const int head = key_head * (value_heads / key_heads) + rank / kSlices;
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize % kDeltaWarps;
  const int group = threadIdx.x / kWarpSize / kDeltaWarps;
  const int column = slice * kColumns + group * kDeltaColumns + lane;
  // Warps with a task of their own.
  const bool norms = slice == 0 && threadIdx.x / kWarpSize == 0;
  const bool gates = threadIdx.x / kWarpSize == 1;

  // The channels of the key head, query first; and the block's own values.
  const int thread = static_cast<int>(threadIdx.x);
  const int value = thread - kValueThread;
  const bool has_key = thread < kKeyChannels;
  const bool has_value = value >= 0 && value < kColumns;
  Channel of_key;
  Channel of_value;
  of_key.index = thread < kDim ? key_head * kDim + thread
                               : (key_heads + key_head) * kDim + thread - kDim;
  of_value.index = (2 * key_heads + head) * kDim + slice * kColumns + value;
  if (has_key) of_key.LoadWeights<W>(conv);
  if (has_value) of_value.LoadWeights<W>(conv);
  uint32_t a_log = 0;
  uint32_t dt_bias = 0;
  if (gates) {
    a_log = LoadBits(delta.a_log, head);
    dt_bias = LoadBits(delta.dt_bias, head);
  }
  if (norms) {
    BitsOf4 weight;
    weight.Load(norm.weight, lane);
    norm_weight[lane] = weight.Value(norm.weight.dtype);
    if (lane == 0) head_out.Open();
  }
  // The states are older than the launch before: a program moves each one on
  // once.
  const auto [live, from_start, slot] = FindRow(conv.rows, row);
  float* state = delta.state +
                 ((slot * value_heads + head) * kDim + warp * kRows) * kDim +
                 column;
  float s[kRows];
  if (live) {
    if (has_key) of_key.LoadState(conv, slot, from_start);
    if (has_value) of_value.LoadState(conv, slot, from_start);
#pragma unroll
    for (int i = 0; i < kRows; ++i) s[i] = from_start ? 0.0f : state[i * kDim];
  }
  DependencyWait();
  // All blocks of a cluster leave here, or none.
  if (!live) return;

  if (has_key) of_key.LoadInput(conv, row);
  if (has_value) of_value.LoadInput(conv, row);
  const int64_t at = row * value_heads + head;
  float b = 0;
  float a = 0;
  if (gates) {
    b = delta.b[at];
    a = delta.a[at];
  }
  if (norms) {
    norm_gate[lane] =
        *reinterpret_cast<const float4*>(norm.z + at * kDim + 4 * lane);
  }

  if (has_key) mixed[thread] = of_key.Out();
  if (has_value) {
    mixed[kKeyChannels + value] = of_value.Out();
    of_value.StoreState(conv, slot);
  }
  if (gates) {
    const DeltaGate gate = GateOf(b, a, FromBits(a_log, delta.a_log.dtype),
                                  FromBits(dt_bias, delta.dt_bias.dtype));
    if (lane == 0) shared_gate = gate;
  }
  __syncthreads();
  // The block has read, and used, the conv state of the key head.
  ClusterArrive();
  if (norms && lane == 0) head_out.Expect();
  const DeltaGate gate = shared_gate;
  const float* q = mixed;
  const float* k = mixed + kDim;
  const KeyFactors factors = FactorsOf<kDim>(q, k, static_cast<float>(kDim));
  const float v = mixed[kKeyChannels + group * kDeltaColumns + lane];
  const float out =
      StepColumn<kRows>(s, q + warp * kRows, k + warp * kRows, factors, gate, v,
                        warp, lane, partial[group]);
  ClusterWait();
  if (warp == 0) head_out.Send(rank - slice, column, out);

#pragma unroll
  for (int i = 0; i < kRows; ++i) state[i * kDim] = s[i];
  if (has_key && rank == 0) of_key.StoreState(conv, slot);
  if (norms) {
    head_out.Await();
    const float4 o =
        *reinterpret_cast<const float4*>(head_out.values + 4 * lane);
    StoreHead(NormHead(o, norm_gate[lane], norm_weight[lane], norm.eps),
              norm.out, rounded, at * kDim + 4 * lane);
  }
}

uint16_t* RoundedOf(const DeltaMixArgs& args) {
  return args.rounded ? static_cast<uint16_t*>(args.round.out) : nullptr;
}

template <typename W, int kColumns>
Status LaunchMix(Stream stream, const DeltaMixArgs& args, int cluster) {
  LaunchAttributes attributes(args.conv.rows.capacity);
  attributes.SetCluster(cluster);
  return LaunchAs(attributes, MixToken<W, kColumns>,
                  dim3(static_cast<unsigned>(cluster),
                       static_cast<unsigned>(args.delta.key_heads),
                       static_cast<unsigned>(args.conv.rows.capacity)),
                  dim3(kDeltaWarps * kColumns), 0, stream, args.conv,
                  args.delta, args.norm, RoundedOf(args));
}

}  // namespace

void GpuKernels::DeltaMix(LaunchKey key, const DeltaMixArgs& args) {
  const DeltaRuleArgs& delta = args.delta;
  const DeltaMixConfig config = ConfigOf(DeltaMixDesc{
      .key_heads = delta.key_heads,
      .value_heads = delta.value_heads,
      .key_dim = delta.key_dim,
      .value_dim = delta.value_dim,
      .taps = args.conv.weight.cols,
      .aligned = Aligned16({args.conv.weight.data, args.norm.z, args.norm.out,
                            args.rounded ? args.round.out : nullptr})});
  if (!config.fused) {
    Conv(key, args.conv);
    DeltaRule(key, delta);
    if (args.rounded) {
      GatedNormRound(key, {.norm = args.norm, .round = args.round});
    } else {
      GatedNorm(key, args.norm);
    }
    return;
  }
  WithElement(args.conv.weight.dtype, [&](const auto* element) {
    using W = std::remove_cvref_t<decltype(*element)>;
    const auto launch = config.columns == kDeltaColumns
                            ? LaunchMix<W, kDeltaColumns>
                            : LaunchMix<W, 2 * kDeltaColumns>;
    Check(launch(stream_, args, config.cluster));
  });
}

}  // namespace signet::backend::gpu
