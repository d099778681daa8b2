// Grouped rows back to the order of slots, as they are or activated.

#include <cstdint>

#include "backend/gpu/elements.cuh"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/product_operands.h"
#include "backend/gpu/vendor.h"
#include "backend/kernels.h"

namespace signet::backend::gpu {
namespace {

constexpr int kWarps = 8;  // a block, one row each

/// Copies `count` elements to `to`, a warp's lanes side by side, several loads
/// ahead of their stores.
template <typename T>
__device__ void CopyRow(const T* from, T* to, int64_t count, int lane) {
  constexpr int kAhead = 4;
  for (int64_t begin = lane; begin < count; begin += kAhead * kWarpSize) {
    T values[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t at = begin + i * kWarpSize;
      if (at < count) values[i] = from[at];
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t at = begin + i * kWarpSize;
      if (at < count) to[at] = values[i];
    }
  }
}

/// T: float, or float4 where rows allow it; `width` counts T.
template <typename T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    UnscatterKernel(int64_t max_rows, int64_t width, const int32_t* sorted_slot,
                    const T* y, T* gate, T* up) {
  DependencyWait();
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t row =
      int64_t{blockIdx.x} * kWarps + static_cast<int>(threadIdx.x) / kWarpSize;
  if (row >= max_rows) return;
  const int64_t slot = sorted_slot[row];
  if (slot < 0) return;
  const T* from = y + row * 2 * width;
  CopyRow(from, gate + slot * width, width, lane);
  CopyRow(from + width, up + slot * width, width, lane);
}

/// A row's gate and up, activated, to its slot of `rounded`, unless that is
/// null, or of `out`; kFloats values at a time.
template <int kFloats>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    UnscatterActivationKernel(int64_t max_rows, int64_t width,
                              const int32_t* sorted_slot, const float* y,
                              float* out, uint16_t* rounded) {
  constexpr int kAhead = 4;
  constexpr int kStep = kWarpSize * kFloats;
  DependencyWait();
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t row =
      int64_t{blockIdx.x} * kWarps + static_cast<int>(threadIdx.x) / kWarpSize;
  if (row >= max_rows) return;
  const int64_t slot = sorted_slot[row];
  if (slot < 0) return;
  const float* gate_row = y + row * 2 * width;
  const float* up_row = gate_row + width;
  for (int64_t begin = int64_t{lane} * kFloats; begin < width;
       begin += kAhead * kStep) {
    Floats<kFloats> gate[kAhead];
    Floats<kFloats> up[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t at = begin + i * kStep;
      if (at >= width) continue;
      gate[i] = LoadFloats<kFloats>(gate_row + at);
      up[i] = LoadFloats<kFloats>(up_row + at);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t at = begin + i * kStep;
      if (at >= width) continue;
      const auto activated = Activated(gate[i], up[i]);
      if (rounded != nullptr) {
        StoreRounded(activated, rounded + slot * width + at);
      } else {
        StoreFloats(activated, out + slot * width + at);
      }
    }
  }
}

template <int kFloats>
Status LaunchActivated(Stream stream, const UnscatterActivationArgs& args) {
  const UnscatterArgs& rows = args.unscatter;
  const int64_t blocks = (rows.max_rows + kWarps - 1) / kWarps;
  if (blocks == 0) return kOk;
  return Launch(UnscatterActivationKernel<kFloats>,
                dim3(static_cast<unsigned>(blocks)), dim3(kWarps * kWarpSize),
                0, stream, rows.max_rows, rows.width, rows.sorted_slot, rows.y,
                args.activation.out,
                static_cast<uint16_t*>(args.activation.rounded));
}

template <typename T>
Status LaunchUnscatter(Stream stream, const UnscatterArgs& args) {
  constexpr int64_t kElements = sizeof(T) / sizeof(float);
  const int64_t blocks = (args.max_rows + kWarps - 1) / kWarps;
  if (blocks == 0) return kOk;
  return Launch(UnscatterKernel<T>, dim3(static_cast<unsigned>(blocks)),
                dim3(kWarps * kWarpSize), 0, stream, args.max_rows,
                args.width / kElements, args.sorted_slot,
                reinterpret_cast<const T*>(args.y),
                reinterpret_cast<T*>(args.gate), reinterpret_cast<T*>(args.up));
}

}  // namespace

void GpuKernels::Unscatter(LaunchKey, const UnscatterArgs& args) {
  const bool quads = args.width % 4 == 0 && IsAligned16(args.y) &&
                     IsAligned16(args.gate) && IsAligned16(args.up);
  Check(quads ? LaunchUnscatter<float4>(stream_, args)
              : LaunchUnscatter<float>(stream_, args));
}

void GpuKernels::UnscatterActivation(LaunchKey,
                                     const UnscatterActivationArgs& args) {
  const bool quads =
      args.unscatter.width % 4 == 0 && IsAligned16(args.unscatter.y) &&
      IsAligned16(args.activation.out) && IsAligned16(args.activation.rounded);
  Check(quads ? LaunchActivated<4>(stream_, args)
              : LaunchActivated<1>(stream_, args));
}

}  // namespace signet::backend::gpu
