// The canonical fold of expert rows (contract N2), of indexed and grouped rows;
// and with what follows it on the way to the residual. A block takes some
// columns of one token, or all where there are tokens enough: to find the rows
// takes longer than to read them.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "backend/gpu/elements.cuh"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/math.cuh"
#include "backend/gpu/norm_rows.cuh"
#include "backend/gpu/product_operands.h"
#include "backend/gpu/reduce.cuh"

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

/// What CombineNorm makes of the row that then lies in shared memory.
struct RowNorm {
  NormArgs norm;
  NormedRows out;
};

/// The norm of `row`, of whole octets, with the thread order of NormKernel.
template <typename W>
__device__ void NormRow(const RowNorm& args, const float* row, int64_t token,
                        float* warp_sums) {
  const NormArgs& norm = args.norm;
  const int64_t octets = norm.width / 8;
  const auto octet = [&](int64_t q) {
    const auto* from = reinterpret_cast<const float4*>(row) + 2 * q;
    return Octet{from[0], from[1]};
  };
  for (int thread = threadIdx.x; thread < kTeamThreads; thread += kThreads) {
    float squares = 0.0f;
    for (int64_t q = thread; q < octets; q += kTeamThreads) {
      squares = AddSquares(squares, octet(q));
    }
    const int lane = thread % kWarpSize;
    const float total = SumLanes(squares, lane);
    if (lane == 0) warp_sums[thread / kWarpSize] = total;
  }
  __syncthreads();
  const float inv = InvRms(warp_sums, norm.width, norm.eps);
  for (int64_t q = threadIdx.x; q < octets; q += kThreads) {
    const Octet v = octet(q);
    const Octet w = Offset(LoadWeights<W>(norm, q, true), norm.offset);
    StoreOctet({Scale(v.low, inv, w.low), Scale(v.high, inv, w.high)}, args.out,
               token * norm.width, norm.width, q, true);
  }
}

/// A slot of the token that is folded here, or none: lane -1.
struct FoldSlot {
  int64_t row;
  float weight;
  int lane;
};

/// T: float4 where rows lie at multiples of 16 bytes, else float. kTail: the
/// row goes on, and args.out is its end. W: of the weights of the norm that
/// follows, for which a block has all columns; void: none does.
template <typename T, bool kTail, typename W>
__global__ void __launch_bounds__(kThreads)
    CombineKernel(const __grid_constant__ CombineArgs args,
                  const __grid_constant__ Tail tail,
                  const __grid_constant__ RowNorm norm) {
  constexpr bool kNorms = !std::is_void_v<W>;
  extern __shared__ float4 whole_row[];  // of args.width, if kNorms
  __shared__ float warp_sums[kTeamWarps];
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
      if constexpr (kNorms) {
        auto* row = reinterpret_cast<float*>(whole_row);
        *reinterpret_cast<T*>(row + column) = out;
      }
    }
    if constexpr (kNorms) {
      __syncthreads();
      NormRow<W>(norm, reinterpret_cast<const float*>(whole_row), token,
                 warp_sums);
    }
  }
}

bool IsVectorRow(const CombineArgs& args, const Tail& tail) {
  return args.width % 4 == 0 && IsAligned16(args.d) && IsAligned16(args.out) &&
         IsAligned16(tail.x) && IsAligned16(tail.residual);
}

dim3 GridOf(const CombineArgs& args, int64_t columns) {
  constexpr int64_t kMaxGridRows = 65535;
  return dim3(
      static_cast<unsigned>((args.width + columns - 1) / columns),
      static_cast<unsigned>(std::min(args.rows.capacity, kMaxGridRows)));
}

template <bool kTail>
Status LaunchCombine(Stream stream, const CombineArgs& args, const Tail& tail) {
  if (args.rows.capacity == 0 || args.width == 0) return kOk;
  const bool vectors = IsVectorRow(args, tail);
  const int64_t columns = args.rows.capacity >= kManyTokens
                              ? args.width
                              : kThreads * (vectors ? 4 : 1);
  return Launch(vectors ? &CombineKernel<float4, kTail, void>
                        : &CombineKernel<float, kTail, void>,
                GridOf(args, columns), dim3(kThreads), 0, stream, args, tail,
                RowNorm());
}

CombineArgs CombineOf(const CombineTailArgs& args) {
  CombineArgs combine = args.combine;
  combine.out = args.add.out;
  return combine;
}
Tail TailOf(const CombineTailArgs& args) {
  return {.gate = args.gated.gate,
          .x = args.gated.x,
          .residual = args.add.residual};
}

RowNorm NormOf(const NormRoundArgs& args) {
  return {.norm = args.norm,
          .out = {.plain = args.keep_normed ? args.norm.out : nullptr,
                  .rounded = static_cast<uint16_t*>(args.round.out)}};
}

// The most columns that are normed where they were folded.
constexpr int64_t kMostNormed = 8192;

bool NormsWhatItFolds(const CombineArgs& combine, const Tail& tail,
                      const RowNorm& norm) {
  return combine.rows.capacity >= kManyTokens && IsVectorRow(combine, tail) &&
         combine.width % 8 == 0 && combine.width <= kMostNormed &&
         IsAligned16(norm.norm.weight.data) && IsAligned16(norm.out.plain) &&
         IsAligned16(norm.out.rounded);
}

}  // namespace

void GpuKernels::Combine(LaunchKey, const CombineArgs& args) {
  Check(LaunchCombine<false>(stream_, args, {}));
}

void GpuKernels::CombineTail(LaunchKey, const CombineTailArgs& args) {
  Check(LaunchCombine<true>(stream_, CombineOf(args), TailOf(args)));
}

void GpuKernels::CombineNorm(LaunchKey key, const CombineNormArgs& args) {
  const CombineArgs combine = CombineOf(args.tail);
  const Tail tail = TailOf(args.tail);
  const RowNorm norm = NormOf(args.norm);
  if (!NormsWhatItFolds(combine, tail, norm)) {
    CombineTail(key, args.tail);
    NormRound(key, args.norm);
    return;
  }
  WithElement(norm.norm.weight.dtype, [&](auto element) {
    using W = std::remove_const_t<std::remove_pointer_t<decltype(element)>>;
    Check(Launch(&CombineKernel<float4, true, W>,
                 GridOf(combine, combine.width), dim3(kThreads),
                 static_cast<size_t>(combine.width) * sizeof(float), stream_,
                 combine, tail, norm));
  });
}

}  // namespace signet::backend::gpu
