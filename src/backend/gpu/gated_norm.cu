// The gated RMS norm after the delta rule, and with the rounding of its output:
// one warp a head.

#include <cstdint>

#include "backend/gpu/delta_config.h"
#include "backend/gpu/elements.cuh"
#include "backend/gpu/gated_norm.cuh"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/stored_bits.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kWarps = 4;

// Heads of kWarpValues values, addresses of 16 bytes. `rounded`: takes the
// output instead of args.out unless it is null.
__global__ void __launch_bounds__(kWarps* kWarpSize)
    NormWholeHeads(const GatedNormArgs args, uint16_t* rounded) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t row = blockIdx.x;
  const int64_t head = int64_t{blockIdx.y} * kWarps + threadIdx.x / kWarpSize;
  BitsOf4 weight;
  weight.Load(args.weight, lane);
  DependencyWait();
  if (row >= *args.rows.live || head >= args.heads) return;
  const int64_t at = (row * args.heads + head) * kWarpValues + 4 * lane;
  const float4 o = *reinterpret_cast<const float4*>(args.o + at);
  const float4 z = *reinterpret_cast<const float4*>(args.z + at);
  StoreHead(NormHead(o, z, weight.Value(args.weight.dtype), args.eps), args.out,
            rounded, at);
}

// Heads of any width, the sums in the same order.
__global__ void __launch_bounds__(kWarps* kWarpSize)
    NormHeads(const GatedNormArgs args, uint16_t* rounded) {
  DependencyWait();
  const int lane = threadIdx.x % kWarpSize;
  const int64_t row = blockIdx.x;
  const int64_t head = int64_t{blockIdx.y} * kWarps + threadIdx.x / kWarpSize;
  if (row >= *args.rows.live || head >= args.heads) return;
  const int dim = static_cast<int>(args.head_dim);
  const int64_t at = (row * args.heads + head) * args.head_dim;
  const float* o = args.o + at;
  float sum = 0;
  for (int base = 4 * lane; base < dim; base += kWarpValues) {
    for (int i = base; i < min(base + 4, dim); ++i) {
      sum = __fmaf_rn(o[i], o[i], sum);
    }
  }
  const float inv = InvRms(WarpSum(sum), dim, args.eps);
  for (int i = lane; i < dim; i += kWarpSize) {
    const float w = FromBits(LoadBits(args.weight, i), args.weight.dtype);
    const float normed = GateNormed(o[i], inv, w, args.z[at + i]);
    if (rounded != nullptr) {
      rounded[at + i] = RoundedBits(normed);
    } else {
      args.out[at + i] = normed;
    }
  }
}

Status LaunchNorm(Stream stream, const GatedNormArgs& args, void* rounded) {
  const void* out = rounded != nullptr ? rounded : args.out;
  const auto kernel =
      args.head_dim == kWarpValues && Aligned16({args.o, args.z, out})
          ? NormWholeHeads
          : NormHeads;
  const dim3 grid(static_cast<unsigned>(args.rows.capacity),
                  static_cast<unsigned>((args.heads + kWarps - 1) / kWarps));
  return Launch(kernel, grid, kWarps * kWarpSize, 0, stream, args,
                static_cast<uint16_t*>(rounded));
}

}  // namespace

void GpuKernels::GatedNorm(LaunchKey, const GatedNormArgs& args) {
  Check(LaunchNorm(stream_, args, nullptr));
}

void GpuKernels::GatedNormRound(LaunchKey, const GatedNormRoundArgs& args) {
  Check(LaunchNorm(stream_, args.norm, args.round.out));
}

}  // namespace signet::backend::gpu
