// Query and key heads before attention: RMS norm, then rotary embedding. A
// block does a row, so that its heads share sines and cosines; a warp does a
// head.

#include <algorithm>

#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/rope.cuh"

namespace signet::backend::gpu {
namespace {

// What a block may use without asking for more.
constexpr int64_t kHeadBytes = 40 << 10;

struct Head {
  const float* x;
  VectorView weight;
  float* out;
};

// Query heads first, then key heads.
__device__ Head HeadOf(const QkNormRopeArgs& args, int64_t row, int64_t head) {
  const int64_t dim = args.head_dim;
  if (head < args.heads) {
    const int64_t at = row * args.heads + head;
    return {args.q_gate + at * 2 * dim, args.q_norm, args.q_out + at * dim};
  }
  const int64_t at = (row * args.kv_heads + head - args.heads) * dim;
  return {args.k + at, args.k_norm, args.k_out + at};
}

template <int kValues>
__global__ void __launch_bounds__(1024)
    QkNormRopeKernel(const QkNormRopeArgs args) {
  extern __shared__ float dynamic_shared[];
  DependencyWait();
  const int64_t row = blockIdx.x;
  const int32_t live = *args.rows.live;
  const int32_t position = args.rows.position[row];
  if (row >= live) return;
  const int dim = static_cast<int>(args.head_dim);
  const int half = static_cast<int>(args.rotary_dim / 2);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  float* sin = dynamic_shared;
  float* cos = sin + half;
  float* turned = cos + half + warp * dim;

  int64_t index = warp;  // there are no more warps than heads
  Head head = HeadOf(args, row, index);
  float values[kValues];
  LoadHead(head.x, dim, lane, values);
  for (int i = static_cast<int>(threadIdx.x); i < half;
       i += static_cast<int>(blockDim.x)) {
    const SinCosPair pair = Rotation(args.inv_freq[i], position);
    sin[i] = pair.sin;
    cos[i] = pair.cos;
  }
  __syncthreads();
  while (true) {
    NormHead(values, head.weight, args.eps, dim, lane, turned);
    __syncwarp();
    RotateHead(sin, cos, half, lane, turned);
    __syncwarp();
    for (int e = lane; e < dim; e += kWarpSize) head.out[e] = turned[e];
    index += warps;
    if (index >= args.heads + args.kv_heads) return;
    head = HeadOf(args, row, index);
    LoadHead(head.x, dim, lane, values);
    __syncwarp();
  }
}

auto KernelFor(int64_t dim) {
  if (dim <= 32) return QkNormRopeKernel<1>;
  if (dim <= 64) return QkNormRopeKernel<2>;
  if (dim <= 128) return QkNormRopeKernel<4>;
  if (dim <= 256) return QkNormRopeKernel<8>;
  return QkNormRopeKernel<16>;
}

}  // namespace

void GpuKernels::QkNormRope(LaunchKey, const QkNormRopeArgs& args) {
  const int64_t head_bytes =
      args.head_dim * static_cast<int64_t>(sizeof(float));
  const int64_t warps = std::min<int64_t>(
      {args.heads + args.kv_heads, 32, kHeadBytes / head_bytes});
  const int64_t shared = warps * head_bytes +
                         args.rotary_dim * static_cast<int64_t>(sizeof(float));
  Check(Launch(KernelFor(args.head_dim),
               dim3(static_cast<unsigned>(args.rows.capacity)),
               dim3(static_cast<unsigned>(warps * kWarpSize)),
               static_cast<size_t>(shared), stream_, args));
}

}  // namespace signet::backend::gpu
