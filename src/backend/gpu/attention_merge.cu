// Adds the splits of long rows: a block does a head of a row. Warp w adds
// splits w, w + kWarps, ... in order, then the warps are added in order.

#include "backend/gpu/attention_split.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kWarps = 8;
constexpr unsigned kAllLanes = 0xffffffff;

// The totals of a lane: of splits lane, lane + 32, ...
constexpr int kShare = kMostSplits / kWarpSize;

// Of heads of up to 32 * kValues elements.
template <int kValues>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    MergeKernel(const SplitAttention attention) {
  __shared__ float shared[kWarps][kValues * kWarpSize];
  const AttentionArgs& args = attention.ops.attention;
  const int64_t row = blockIdx.y;
  const int64_t head = blockIdx.x;
  // Older than the launch before.
  const int32_t live = *args.rows.live;
  const int32_t position = args.rows.position[row];
  const int count =
      row < live ? SplitsOf(attention.config.rule, position).count : 0;
  DependencyWait();
  if (count <= 1) return;
  const int dim = static_cast<int>(args.cache.head_dim);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const SplitSums sums = SumsIn(attention);
  const int64_t first = SumIndex(attention, row, head, 0);
  const float* gate = GateOf(args, row, head);

  // In every warp alike.
  float2 totals[kShare];
  float max = -INFINITY;
#pragma unroll
  for (int i = 0; i < kShare; ++i) {
    const int s = lane + i * kWarpSize;
    totals[i] =
        s < count ? sums.totals[first + s] : make_float2(-INFINITY, 0.0f);
    max = fmaxf(max, totals[i].x);
  }
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, distance));
  }
  float weights[kShare];
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < kShare; ++i) {
    weights[i] = Exp(__fsub_rn(totals[i].x, max));
    total = __fmaf_rn(totals[i].y, weights[i], total);
  }
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    total = __fadd_rn(total, __shfl_xor_sync(kAllLanes, total, distance));
  }

  float mine[kValues] = {};
#pragma unroll
  for (int i = 0; i < kShare; ++i) {
    if (i * kWarpSize >= count) break;
    // All of them are on their way before any is added.
    constexpr int kAtOnce = kWarpSize / kWarps;
    float values[kAtOnce][kValues];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int s = i * kWarpSize + warp + j * kWarps;
      const float* from = sums.values + (first + s) * dim;
#pragma unroll
      for (int k = 0; k < kValues; ++k) {
        const int e = lane + k * kWarpSize;
        values[j][k] = s < count && e < dim ? from[e] : 0.0f;
      }
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const float weight =
          __shfl_sync(kAllLanes, weights[i], warp + j * kWarps);
#pragma unroll
      for (int k = 0; k < kValues; ++k) {
        mine[k] = __fmaf_rn(values[j][k], weight, mine[k]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    shared[warp][lane + i * kWarpSize] = mine[i];
  }
  __syncthreads();
  const float inverse = __fdiv_rn(1.0f, total);
  float* out = args.out + (row * args.heads + head) * dim;
  for (int e = static_cast<int>(threadIdx.x); e < dim;
       e += kWarps * kWarpSize) {
    float sum = shared[0][e];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) sum = __fadd_rn(sum, shared[w][e]);
    out[e] = Gated(sum, inverse, gate[e]);
  }
}

auto KernelFor(int64_t dim) {
  if (dim <= 64) return MergeKernel<2>;
  if (dim <= 128) return MergeKernel<4>;
  if (dim <= 256) return MergeKernel<8>;
  return MergeKernel<kMaxAttentionDim / kWarpSize>;
}

}  // namespace

Status LaunchMerge(Stream stream, const SplitAttention& attention) {
  const AttentionArgs& args = attention.ops.attention;
  return LaunchRows(args.rows.capacity, KernelFor(args.cache.head_dim),
                    dim3(static_cast<unsigned>(args.heads),
                         static_cast<unsigned>(args.rows.capacity)),
                    dim3(kWarps * kWarpSize), 0, stream, attention);
}

}  // namespace signet::backend::gpu
