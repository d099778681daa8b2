// Ops that treat every element alike: rounding, activation, adds, the identity
// reduction. Live rows are contiguous, so but for the gated add each is one run
// of elements, taken four at a time where the buffers allow.

#include <algorithm>
#include <cstdint>

#include "backend/gpu/elements.cuh"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/math.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kThreads = 256;
// Enough blocks to keep a multiprocessor's memory pipe full.
constexpr int64_t kBlocksPerSm = 8;

/// Four values at a time over [0, count) where `vectors`, then one at a time;
/// a grid takes the run in strides. body(width of a step, first element).
template <typename Body>
__device__ __forceinline__ void ForElements(int64_t count, bool vectors,
                                            const Body& body) {
  const int64_t thread =
      static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t whole = vectors ? count / 4 * 4 : 0;
  for (int64_t i = 4 * thread; i < whole; i += 4 * stride) {
    body(Floats<4>(), i);
  }
  for (int64_t i = whole + thread; i < count; i += stride) {
    body(Floats<1>(), i);
  }
}

__global__ void __launch_bounds__(kThreads)
    RoundKernel(const __grid_constant__ RoundArgs args, bool vectors) {
  DependencyWait();
  const int64_t count = __ldcg(args.rows.live) * args.multiple * args.width;
  auto* out = static_cast<uint16_t*>(args.out);
  ForElements(count, vectors, [&](auto step, int64_t i) {
    constexpr int kFloats = sizeof(step) / sizeof(float);
    StoreRounded(LoadFloats<kFloats>(args.x + i), out + i);
  });
}

__global__ void __launch_bounds__(kThreads)
    ActivationKernel(const __grid_constant__ ActivationArgs args,
                     bool vectors) {
  DependencyWait();
  const int64_t count = __ldcg(args.rows.live) * args.multiple * args.width;
  ForElements(count, vectors, [&](auto step, int64_t i) {
    constexpr int kFloats = sizeof(step) / sizeof(float);
    const auto out = Activated(LoadFloats<kFloats>(args.gate + i),
                               LoadFloats<kFloats>(args.up + i));
    if (args.rounded != nullptr) {
      StoreRounded(out, static_cast<uint16_t*>(args.rounded) + i);
    } else {
      StoreFloats(out, args.out + i);
    }
  });
}

__global__ void __launch_bounds__(kThreads)
    ResidualAddKernel(const __grid_constant__ ResidualAddArgs args,
                      bool vectors) {
  DependencyWait();
  ForElements(__ldcg(args.rows.live) * args.width, vectors,
              [&](auto step, int64_t i) {
                constexpr int kFloats = sizeof(step) / sizeof(float);
                auto sum = LoadFloats<kFloats>(args.residual + i);
                const auto addend = LoadFloats<kFloats>(args.addend + i);
#pragma unroll
                for (int k = 0; k < kFloats; ++k) {
                  sum.v[k] = __fadd_rn(sum.v[k], addend.v[k]);
                }
                StoreFloats(sum, args.out + i);
              });
}

__global__ void __launch_bounds__(kThreads)
    IdentityReduceKernel(const __grid_constant__ IdentityReduceArgs args,
                         bool vectors) {
  DependencyWait();
  ForElements(__ldcg(args.rows.live) * args.width, vectors,
              [&](auto step, int64_t i) {
                constexpr int kFloats = sizeof(step) / sizeof(float);
                StoreFloats(LoadFloats<kFloats>(args.x + i), args.out + i);
              });
}

/// A row of the grid a row of the call; its blocks stride over the width.
__global__ void __launch_bounds__(kThreads)
    GatedAddKernel(const __grid_constant__ GatedAddArgs args, bool vectors) {
  DependencyWait();
  const int64_t live = __ldcg(args.rows.live);
  for (int64_t row = blockIdx.y; row < live; row += gridDim.y) {
    const float gate = Sigmoid(__ldcg(args.gate + row));
    const int64_t at = row * args.width;
    ForElements(args.width, vectors, [&](auto step, int64_t i) {
      constexpr int kFloats = sizeof(step) / sizeof(float);
      auto sum = LoadFloats<kFloats>(args.addend + at + i);
      const auto x = LoadFloats<kFloats>(args.x + at + i);
#pragma unroll
      for (int k = 0; k < kFloats; ++k) {
        sum.v[k] = GatedSum(sum.v[k], gate, x.v[k]);
      }
      StoreFloats(sum, args.out + at + i);
    });
  }
}

template <typename... Pointers>
bool Aligned(Pointers... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

/// Blocks of a run of `count` elements.
dim3 GridOf(int64_t count, int num_sms) {
  const int64_t blocks = (count + 4 * kThreads - 1) / (4 * kThreads);
  return dim3(static_cast<unsigned>(std::min(blocks, kBlocksPerSm * num_sms)));
}

}  // namespace

void GpuKernels::Round(LaunchKey, const RoundArgs& args) {
  const int64_t count = args.rows.capacity * args.multiple * args.width;
  if (count == 0) return;
  Check(Launch(&RoundKernel, GridOf(count, num_sms_), dim3(kThreads), 0,
               stream_, args, Aligned(args.x, args.out)));
}

void GpuKernels::Activation(LaunchKey, const ActivationArgs& args) {
  const int64_t count = args.rows.capacity * args.multiple * args.width;
  if (count == 0) return;
  Check(Launch(&ActivationKernel, GridOf(count, num_sms_), dim3(kThreads), 0,
               stream_, args,
               Aligned(args.gate, args.up, args.out, args.rounded)));
}

void GpuKernels::ResidualAdd(LaunchKey, const ResidualAddArgs& args) {
  const int64_t count = args.rows.capacity * args.width;
  if (count == 0) return;
  Check(Launch(&ResidualAddKernel, GridOf(count, num_sms_), dim3(kThreads), 0,
               stream_, args, Aligned(args.residual, args.addend, args.out)));
}

void GpuKernels::IdentityReduce(LaunchKey, const IdentityReduceArgs& args) {
  const int64_t count = args.rows.capacity * args.width;
  if (count == 0) return;
  Check(Launch(&IdentityReduceKernel, GridOf(count, num_sms_), dim3(kThreads),
               0, stream_, args, Aligned(args.x, args.out)));
}

void GpuKernels::GatedAdd(LaunchKey, const GatedAddArgs& args) {
  constexpr int64_t kMaxGridRows = 65535;
  if (args.rows.capacity == 0 || args.width == 0) return;
  dim3 grid = GridOf(args.width, num_sms_);
  grid.y = static_cast<unsigned>(std::min(args.rows.capacity, kMaxGridRows));
  const bool vectors =
      args.width % 4 == 0 && Aligned(args.addend, args.x, args.out);
  Check(
      Launch(&GatedAddKernel, grid, dim3(kThreads), 0, stream_, args, vectors));
}

}  // namespace signet::backend::gpu
