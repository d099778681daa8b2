// The RMS norm of rows, also of sums that it makes first, and with the rounding
// of its output. The sum of squares has the thread order of
// FloatProductsKernel, which norms its input the same way.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "backend/gpu/dot.cuh"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/norm_rows.cuh"
#include "backend/gpu/reduce.cuh"

namespace signet::backend::gpu {
namespace {

/// As ResidualAdd rounds it.
__device__ __forceinline__ float4 Sum(const float4& a, const float4& b) {
  return make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y),
                     __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w));
}

/// A block a row. The first kKept octets of a thread, which it reads twice,
/// stay in registers, and their weights are there early. When kAdds, args.x is
/// what `add` makes of its inputs, each element by the thread that norms it.
template <typename T, int kKept, bool kAdds>
__global__ void __launch_bounds__(kTeamThreads)
    NormKernel(const __grid_constant__ NormArgs args,
               const __grid_constant__ ResidualAddArgs add,
               const __grid_constant__ NormedRows out, bool vectors) {
  __shared__ float warp_sums[kTeamWarps];
  const int64_t octets = (args.width + 7) / 8;
  const int thread = ThreadOf<kTeamThreads>();
  StoredOctet<T> weights[kKept];
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int64_t q = thread + static_cast<int64_t>(i) * kTeamThreads;
    weights[i] = {};
    if (q < octets) weights[i] = LoadWeights<T>(args, q, vectors);
  }
  DependencyWait();
  const int64_t row = blockIdx.x;
  if (row >= __ldcg(args.rows.live)) return;
  const int64_t at = row * args.width;
  const float* x = args.x + at;
  const float* read = kAdds ? add.residual + at : x;
  const auto sum = [&](const Octet& residual, int64_t q) {
    const Octet addend = LoadOctet(add.addend + at, args.width, q, vectors);
    return Octet{Sum(residual.low, addend.low),
                 Sum(residual.high, addend.high)};
  };
  const auto store_sum = [&](const Octet& octet, int64_t q) {
    StoreOctet(octet, {.plain = add.out, .rounded = nullptr}, at, args.width, q,
               vectors);
  };

  Octet kept[kKept];
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int64_t q = thread + static_cast<int64_t>(i) * kTeamThreads;
    kept[i] = {};
    if (q < octets) kept[i] = LoadOctet(read, args.width, q, vectors);
  }
  if constexpr (kAdds) {
    // All loads before the first store, which may be to add.residual.
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int64_t q = thread + static_cast<int64_t>(i) * kTeamThreads;
      if (q < octets) kept[i] = sum(kept[i], q);
    }
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int64_t q = thread + static_cast<int64_t>(i) * kTeamThreads;
      if (q < octets) store_sum(kept[i], q);
    }
  }
#pragma unroll
  for (int i = 0; i < kKept; ++i) squares = AddSquares(squares, kept[i]);
  for (int64_t q = thread + int64_t{kKept} * kTeamThreads; q < octets;
       q += kTeamThreads) {
    Octet octet = LoadOctet(read, args.width, q, vectors);
    if constexpr (kAdds) {
      octet = sum(octet, q);
      store_sum(octet, q);
    }
    squares = AddSquares(squares, octet);
  }
  const int lane = LaneOfThread();
  const float total = SumLanes(squares, lane);
  if (lane == 0) warp_sums[thread / kWarpSize] = total;
  __syncthreads();
  const float inv = InvRms(warp_sums, args.width, args.eps);

  const auto store = [&](const Octet& v, const StoredOctet<T>& weight,
                         int64_t q) {
    const Octet w = Offset(weight, args.offset);
    StoreOctet({Scale(v.low, inv, w.low), Scale(v.high, inv, w.high)}, out, at,
               args.width, q, vectors);
  };
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int64_t q = thread + static_cast<int64_t>(i) * kTeamThreads;
    if (q < octets) store(kept[i], weights[i], q);
  }
  for (int64_t q = thread + int64_t{kKept} * kTeamThreads; q < octets;
       q += kTeamThreads) {
    store(LoadOctet(x, args.width, q, vectors),
          LoadWeights<T>(args, q, vectors), q);
  }
}

/// `add`: null: args.x is there.
Status LaunchNorm(Stream stream, const NormArgs& args, const NormedRows& out,
                  const ResidualAddArgs* add = nullptr) {
  if (args.rows.capacity == 0) return kOk;
  const auto aligned = [](const void* p) {
    return reinterpret_cast<uintptr_t>(p) % 16 == 0;
  };
  const bool vectors =
      args.width % 8 == 0 && aligned(args.x) && aligned(args.weight.data) &&
      aligned(out.plain) && aligned(out.rounded) &&
      (add == nullptr || (aligned(add->residual) && aligned(add->addend)));
  const bool narrow = args.width <= 8 * kTeamThreads;
  Status status = kOk;
  WithElement(args.weight.dtype, [&](auto element) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(element)>>;
    const auto kernel =
        add == nullptr
            ? (narrow ? &NormKernel<T, 1, false> : &NormKernel<T, 3, false>)
            : (narrow ? &NormKernel<T, 1, true> : &NormKernel<T, 3, true>);
    status = LaunchRows(
        args.rows.capacity, kernel,
        dim3(static_cast<unsigned>(args.rows.capacity)), dim3(kTeamThreads), 0,
        stream, args, add == nullptr ? ResidualAddArgs() : *add, out, vectors);
  });
  return status;
}

}  // namespace

void GpuKernels::Norm(LaunchKey, const NormArgs& args) {
  Check(LaunchNorm(stream_, args, {.plain = args.out, .rounded = nullptr}));
}

void GpuKernels::NormRound(LaunchKey, const NormRoundArgs& args) {
  Check(LaunchNorm(stream_, args.norm,
                   {.plain = args.keep_normed ? args.norm.out : nullptr,
                    .rounded = static_cast<uint16_t*>(args.round.out)}));
}

void GpuKernels::AddNormRound(LaunchKey, const AddNormRoundArgs& args) {
  Check(LaunchNorm(stream_, args.norm,
                   {.plain = args.keep_normed ? args.norm.out : nullptr,
                    .rounded = static_cast<uint16_t*>(args.round.out)},
                   &args.add));
}

}  // namespace signet::backend::gpu
