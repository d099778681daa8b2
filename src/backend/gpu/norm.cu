// The RMS norm of rows, also of sums that it makes first, and with the rounding
// of its output. The sum of squares has the thread order of
// FloatProductsKernel, which norms its input the same way.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "backend/gpu/dot.cuh"
#include "backend/gpu/elements.cuh"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/reduce.cuh"
#include "backend/gpu/stored.cuh"

namespace signet::backend::gpu {
namespace {

/// What a launch leaves: rows of f32, of bf16, or both; null: not that one.
struct NormedRows {
  float* plain;
  uint16_t* rounded;
};

/// Eight weights as stored.
template <typename T>
struct StoredOctet {
  uint4 bits[8 * sizeof(T) / sizeof(uint4)];
};

/// Octet `q` of the weights, zeros past them. They are weights, so they may be
/// read before the inputs are there.
template <typename T>
__device__ __forceinline__ StoredOctet<T> LoadWeights(const NormArgs& args,
                                                      int64_t q, bool vectors) {
  StoredOctet<T> octet;
  if (vectors) {
    constexpr int kLoads = sizeof(octet) / sizeof(uint4);
    const auto* from = static_cast<const uint4*>(args.weight.data) + kLoads * q;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) octet.bits[i] = __ldg(from + i);
    return octet;
  }
  const T* from = static_cast<const T*>(args.weight.data);
  T values[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    values[i] = 8 * q + i < args.width ? from[8 * q + i] : T(0.0f);
  }
  std::memcpy(&octet, values, sizeof(octet));
  return octet;
}

/// With their offset.
template <typename T>
__device__ __forceinline__ Octet Offset(const StoredOctet<T>& octet,
                                        float offset) {
  T values[8];
  std::memcpy(values, &octet, sizeof(octet));
  float w[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) w[i] = __fadd_rn(offset, ToFloat(values[i]));
  return {make_float4(w[0], w[1], w[2], w[3]),
          make_float4(w[4], w[5], w[6], w[7])};
}

/// `at`: the first element of the row.
__device__ __forceinline__ void StoreOctet(const Octet& v,
                                           const NormedRows& out, int64_t at,
                                           int64_t width, int64_t q,
                                           bool vectors) {
  if (vectors) {
    if (out.plain != nullptr) {
      auto* to = reinterpret_cast<float4*>(out.plain + at) + 2 * q;
      to[0] = v.low;
      to[1] = v.high;
    }
    if (out.rounded != nullptr) {
      const ushort4 halves[2] = {RoundedBits(v.low), RoundedBits(v.high)};
      uint4 bits;
      std::memcpy(&bits, halves, sizeof(bits));
      reinterpret_cast<uint4*>(out.rounded + at)[q] = bits;
    }
    return;
  }
  const float values[8] = {v.low.x,  v.low.y,  v.low.z,  v.low.w,
                           v.high.x, v.high.y, v.high.z, v.high.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (8 * q + i >= width) break;
    if (out.plain != nullptr) out.plain[at + 8 * q + i] = values[i];
    if (out.rounded != nullptr) {
      out.rounded[at + 8 * q + i] = RoundedBits(values[i]);
    }
  }
}

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
