// The canonical fold of expert rows (contract N2), of indexed and grouped rows;
// and with what follows it on the way to the residual. A block takes some
// columns of one token, or all where there are tokens enough: to find the rows
// takes longer than to read them.

#include <algorithm>
#include <cstdint>

#include "backend/gpu/elements.cuh"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/math.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kThreads = 128;
constexpr int kMaxFoldLanes = 8;
// Slots whose rows are in flight at a time.
constexpr int kBatch = 8;
// From here on a token is one block's.
constexpr int64_t kManyTokens = 256;

template <typename T>
__device__ __forceinline__ T LoadOnce(const T* from) {
  return __ldcs(from);
}
__device__ __forceinline__ void PrefetchToL2(const float* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}
__device__ __forceinline__ float Fma(float w, float d, float sum) {
  return __fmaf_rn(w, d, sum);
}
__device__ __forceinline__ float4 Fma(float w, const float4& d,
                                      const float4& sum) {
  return make_float4(__fmaf_rn(w, d.x, sum.x), __fmaf_rn(w, d.y, sum.y),
                     __fmaf_rn(w, d.z, sum.z), __fmaf_rn(w, d.w, sum.w));
}
__device__ __forceinline__ float Plus(float a, float b) {
  return __fadd_rn(a, b);
}
__device__ __forceinline__ float4 Plus(const float4& a, const float4& b) {
  return make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y),
                     __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w));
}

__device__ __forceinline__ float Gated(float addend, float gate, float x) {
  return GatedSum(addend, gate, x);
}
__device__ __forceinline__ float4 Gated(const float4& addend, float gate,
                                        const float4& x) {
  return make_float4(
      GatedSum(addend.x, gate, x.x), GatedSum(addend.y, gate, x.y),
      GatedSum(addend.z, gate, x.z), GatedSum(addend.w, gate, x.w));
}

/// What CombineTail adds to the folded row.
struct Tail {
  const float* gate;      // [B, 1]
  const float* x;         // [B, H]
  const float* residual;  // [B, H]
};

/// A slot of the token that is folded here, or none: lane -1.
struct FoldSlot {
  int64_t row;
  float weight;
  int lane;
};

/// T: float4 where rows lie at multiples of 16 bytes, else float. kTail: the
/// row goes on, and args.out is its end.
template <typename T, bool kTail>
__global__ void __launch_bounds__(kThreads)
    CombineKernel(const __grid_constant__ CombineArgs args,
                  const __grid_constant__ Tail tail) {
  constexpr int kFloats = sizeof(T) / sizeof(float);
  __shared__ FoldSlot slots[kBatch];
  DependencyWait();
  const int64_t live = __ldcg(args.rows.live);
  const auto top_k = static_cast<int>(args.top_k);
  constexpr int64_t kColumns = int64_t{kThreads} * kFloats;
  const int64_t first = blockIdx.x * kColumns;
  for (int64_t token = blockIdx.y; token < live; token += gridDim.y) {
    for (int64_t base = first; base < args.width;
         base += gridDim.x * kColumns) {
      const int64_t column = base + threadIdx.x * kFloats;
      const bool inside = column < args.width;
      const int64_t at = token * args.width + column;
      T lanes[kMaxFoldLanes];
#pragma unroll
      for (int l = 0; l < kMaxFoldLanes; ++l) lanes[l] = {};
      if (kTail && inside) {  // on their way while the token is folded
        PrefetchToL2(tail.x + at);
        PrefetchToL2(tail.residual + at);
      }
      for (int begin = 0; begin < top_k; begin += kBatch) {
        const int k = begin + static_cast<int>(threadIdx.x);
        // The only batch of a token is found once.
        const bool finds = base == first || top_k > kBatch;
        if (finds) __syncthreads();  // the last batch is folded
        if (finds && threadIdx.x < kBatch) {
          FoldSlot own = {0, 0.0f, -1};
          if (k < top_k) {
            const int64_t slot = token * top_k + k;
            const int32_t id = __ldcg(args.ids + slot);
            own.row = args.inverse_perm == nullptr
                          ? slot
                          : __ldcg(args.inverse_perm + slot);
            own.weight = __ldcg(args.weights + slot);
            if (id >= 0 && own.row >= 0 && args.global_to_local[id] >= 0) {
              own.lane = id * static_cast<int>(args.lanes) /
                             static_cast<int>(args.num_experts) -
                         static_cast<int>(args.first_lane);
            }
          }
          slots[threadIdx.x] = own;
        }
        if (finds) __syncthreads();
        if (!inside) continue;
        T d[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          d[i] = {};
          if (slots[i].lane >= 0) {
            d[i] = LoadOnce(reinterpret_cast<const T*>(
                args.d + slots[i].row * args.width + column));
          }
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const int lane = slots[i].lane;
          const float weight = slots[i].weight;
#pragma unroll
          for (int l = 0; l < kMaxFoldLanes; ++l) {
            if (l == lane) lanes[l] = Fma(weight, d[i], lanes[l]);
          }
        }
      }
      if (!inside) continue;
#pragma unroll
      for (int stride = 1; stride < kMaxFoldLanes; stride *= 2) {
        if (stride >= args.num_lanes) break;
#pragma unroll
        for (int l = 0; l < kMaxFoldLanes; l += 2 * stride) {
          lanes[l] = Plus(lanes[l], lanes[l + stride]);
        }
      }
      T out = lanes[0];
      if constexpr (kTail) {
        const float gate = Sigmoid(__ldcg(tail.gate + token));
        const T x = LoadOnce(reinterpret_cast<const T*>(tail.x + at));
        const T residual =
            LoadOnce(reinterpret_cast<const T*>(tail.residual + at));
        out = Plus(residual, Gated(out, gate, x));
      }
      *reinterpret_cast<T*>(args.out + at) = out;
    }
  }
}

template <bool kTail>
Status LaunchCombine(Stream stream, const CombineArgs& args, const Tail& tail) {
  constexpr int64_t kMaxGridRows = 65535;
  if (args.rows.capacity == 0 || args.width == 0) return kOk;
  const auto aligned = [](const void* p) {
    return reinterpret_cast<uintptr_t>(p) % 16 == 0;
  };
  const bool vectors = args.width % 4 == 0 && aligned(args.d) &&
                       aligned(args.out) && aligned(tail.x) &&
                       aligned(tail.residual);
  const int64_t columns = args.rows.capacity >= kManyTokens
                              ? args.width
                              : kThreads * (vectors ? 4 : 1);
  const dim3 grid(
      static_cast<unsigned>((args.width + columns - 1) / columns),
      static_cast<unsigned>(std::min(args.rows.capacity, kMaxGridRows)));
  return Launch(
      vectors ? &CombineKernel<float4, kTail> : &CombineKernel<float, kTail>,
      grid, dim3(kThreads), 0, stream, args, tail);
}

}  // namespace

void GpuKernels::Combine(LaunchKey, const CombineArgs& args) {
  Check(LaunchCombine<false>(stream_, args, {}));
}

void GpuKernels::CombineTail(LaunchKey, const CombineTailArgs& args) {
  CombineArgs combine = args.combine;
  combine.out = args.add.out;
  Check(LaunchCombine<true>(stream_, combine,
                            {.gate = args.gated.gate,
                             .x = args.gated.x,
                             .residual = args.add.residual}));
}

}  // namespace signet::backend::gpu
