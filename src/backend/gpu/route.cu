// Routers: softmax top-k, and precomputed routes. A warp a row. The launch
// after one of these may read the route as it starts, so none starts before it
// ends.

#include <cstdint>

#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/route.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kThreads = 128;
constexpr int kRowsPerBlock = kThreads / kWarpSize;

__global__ void __launch_bounds__(kThreads)
    RouteKernel(const __grid_constant__ RouteArgs args) {
  WaitForEarlier();
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock +
                      threadIdx.x / kWarpSize;
  if (row >= __ldcg(args.rows.live)) return;
  const bool finite = RouteRow(
      args.scores + row * args.num_experts, static_cast<int>(args.num_experts),
      static_cast<int>(args.top_k), args.renormalise, lane,
      args.ids + row * args.top_k, args.weights + row * args.top_k);
  if (!finite && lane == 0) atomicOr(args.flag, kFlagNonFinite);
  __threadfence();
}

__global__ void __launch_bounds__(kThreads)
    PrecomputedRouteKernel(const __grid_constant__ PrecomputedRouteArgs args) {
  WaitForEarlier();
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock +
                      threadIdx.x / kWarpSize;
  if (row >= __ldcg(args.rows.live)) return;
  const int32_t* in_ids = args.in_ids + row * args.top_k;
  const float* in_weights = args.in_weights + row * args.top_k;
  int32_t faults = 0;
  for (int64_t k = lane; k < args.top_k; k += kWarpSize) {
    if (!IsFiniteScore(__ldcg(in_weights + k))) faults |= kFlagNonFinite;
    const int32_t id = __ldcg(in_ids + k);
    if (id < 0 || id >= args.num_experts) {
      faults |= kFlagExpertOutOfRange;
      continue;
    }
    for (int64_t before = 0; before < k; ++before) {
      if (__ldcg(in_ids + before) == id) faults |= kFlagExpertRepeated;
    }
  }
  faults = static_cast<int32_t>(
      __reduce_or_sync(kRouteLanes, static_cast<unsigned>(faults)));
  for (int64_t k = lane; k < args.top_k; k += kWarpSize) {
    args.ids[row * args.top_k + k] = faults != 0 ? -1 : __ldcg(in_ids + k);
    args.weights[row * args.top_k + k] =
        faults != 0 ? 0.0f : __ldcg(in_weights + k);
  }
  if (faults != 0 && lane == 0) atomicOr(args.flag, faults);
  __threadfence();
}

dim3 GridOf(int64_t rows) {
  return dim3(
      static_cast<unsigned>((rows + kRowsPerBlock - 1) / kRowsPerBlock));
}

}  // namespace

void GpuKernels::Route(LaunchKey, const RouteArgs& args) {
  if (args.rows.capacity == 0) return;
  Check(Launch(&RouteKernel, GridOf(args.rows.capacity), dim3(kThreads), 0,
               stream_, args));
}

void GpuKernels::PrecomputedRoute(LaunchKey, const PrecomputedRouteArgs& args) {
  if (args.rows.capacity == 0) return;
  Check(Launch(&PrecomputedRouteKernel, GridOf(args.rows.capacity),
               dim3(kThreads), 0, stream_, args));
}

}  // namespace signet::backend::gpu
