#pragma once
// The kernel of products of f32 inputs, bound by the weights' bytes. One wave
// of blocks; a team of eight warps (or one, where rows are short) takes a few
// weight rows at a time, the first of which are on their way before the input
// is there. Its instances are spread over the float_products_*.cu.

#include <cstdint>
#include <type_traits>

#include "backend/fused_kernels.h"
#include "backend/gpu/dot.cuh"
#include "backend/gpu/float_config.h"
#include "backend/gpu/math.cuh"

namespace signet::backend::gpu {

struct FloatKernelPart {
  const char* weight;
  float* out;
  int rows;
  int first_group;
};

struct FloatKernelArgs {
  const int32_t* live;
  int64_t capacity;  // rows of x
  const float* x;
  int64_t cols;
  int64_t row_bytes;
  int octets;
  bool last_row;
  bool prefetch;
  tensor::DType dtype;
  // Norm.
  bool norm;
  bool norm_vectors;  // bf16 weights at a multiple of 16 bytes
  tensor::DType norm_dtype;
  float norm_offset;
  float norm_eps;
  const void* norm_weight;
  float* normed;
  // What follows.
  const char* up_weight;
  const float* residual;
  int num_parts;
  int num_groups;
  FloatKernelPart parts[kMaxFusedProducts];
};

/// The launches of each kind of kernel; config.path chooses.
Status RunShared(Stream stream, const FloatConfig& config,
                 const FloatKernelArgs& args);
Status RunSharedShort(Stream stream, const FloatConfig& config,
                      const FloatKernelArgs& args);
Status RunStreamed(Stream stream, const FloatConfig& config,
                   const FloatKernelArgs& args);
Status RunPortable(Stream stream, const FloatConfig& config,
                   const FloatKernelArgs& args);

namespace {

/// The groups of one team, in a stride over all of them.
template <int kRows>
struct ProductSource {
  const FloatKernelArgs& args;
  int index;
  int stride;
  int part;

  __device__ __forceinline__ bool Pair(int p) const {
    return args.up_weight != nullptr && p + 1 == args.num_parts;
  }
  __device__ __forceinline__ bool Next(RowGroup& group) {
    if (index >= args.num_groups) return false;
    while (part + 1 < args.num_parts &&
           index >= args.parts[part + 1].first_group) {
      ++part;
    }
    group.part = part;
    group.row = (index - args.parts[part].first_group) *
                (Pair(part) ? kRows / 2 : kRows);
    index += stride;
    return true;
  }
  __device__ __forceinline__ GroupRows Rows(const RowGroup& group) const {
    const FloatKernelPart& matrix = args.parts[group.part];
    const bool pair = Pair(group.part);
    const int64_t begin = group.row * args.row_bytes;
    GroupRows rows;
    rows.low = matrix.weight + begin;
    rows.high =
        pair ? args.up_weight + begin : rows.low + kRows / 2 * args.row_bytes;
    CutGroup<kRows>(rows, pair, matrix.rows - group.row);
    return rows;
  }
};

/// Writes what a group gives: products, activations or sums with a residual.
template <int kRows>
struct ProductFinish {
  const FloatKernelArgs& args;
  int64_t first;  // output row of input row 0
  int count;      // live input rows

  __device__ __forceinline__ bool Pair(const RowGroup& group) const {
    return args.up_weight != nullptr && group.part + 1 == args.num_parts;
  }
  __device__ __forceinline__ float Begin(const RowGroup& group, int b,
                                         int r) const {
    const int rows = args.parts[group.part].rows;
    if (args.residual == nullptr || b >= count || group.row + r >= rows) {
      return 0.0f;
    }
    return __ldcg(args.residual + (first + b) * rows + group.row + r);
  }
  __device__ __forceinline__ void End(const RowGroup& group, int b, int r,
                                      float value, float partner,
                                      float begun) const {
    const FloatKernelPart& part = args.parts[group.part];
    if (b >= count || group.row + r >= part.rows) return;
    float* out = part.out + (first + b) * part.rows + group.row + r;
    if (Pair(group)) {
      if (r < kRows / 2) *out = __fmul_rn(Silu(value), partner);
    } else if (args.residual != nullptr) {
      *out = __fadd_rn(begun, value);
    } else {
      *out = value;
    }
  }
};

/// Octet `q` of the norm's weights, with their offset, from where they were
/// brought.
__device__ __forceinline__ Octet NormWeights(const FloatKernelArgs& args,
                                             const float4* brought, int q) {
  Octet w;
  if (args.norm_vectors) {
    const uint4 stored = reinterpret_cast<const uint4*>(brought)[q];
    w = {VectorWeights::Half<0>(stored), VectorWeights::Half<1>(stored)};
  } else {
    w = {brought[q], brought[args.octets + q]};
  }
  const auto plus = [&](const float4& v) {
    return make_float4(
        __fadd_rn(args.norm_offset, v.x), __fadd_rn(args.norm_offset, v.y),
        __fadd_rn(args.norm_offset, v.z), __fadd_rn(args.norm_offset, v.w));
  };
  return {plus(w.low), plus(w.high)};
}

/// The input rows of a block in shared memory, normed where asked. Each team
/// of the block brings its share of the rows, by the thread order of Norm.
template <int kBatch>
struct InputBuilder {
  const FloatKernelArgs& args;
  float4* planes;   // [kBatch * 2, octets]
  float4* weights;  // [2, octets] of the norm, or [octets] as stored
  float* sums;      // [kBatch, kTeamWarps]

  /// Before DependencyWait, which need not wait for what this asks for.
  __device__ __forceinline__ void BringNormWeights() const {
    if (!args.norm) return;
    for (int q = static_cast<int>(threadIdx.x); q < args.octets;
         q += static_cast<int>(blockDim.x)) {
      if (args.norm_vectors) {
        CopyToShared(static_cast<const uint4*>(args.norm_weight) + q,
                     reinterpret_cast<uint4*>(weights) + q);
        continue;
      }
      float w[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        w[i] = LoadStored(args.norm_weight, args.norm_dtype,
                          static_cast<int64_t>(q) * 8 + i);
      }
      weights[q] = make_float4(w[0], w[1], w[2], w[3]);
      weights[args.octets + q] = make_float4(w[4], w[5], w[6], w[7]);
    }
  }

  __device__ __forceinline__ void Bring(const float* input, int count,
                                        float* normed) const {
    const int thread = ThreadOf<kTeamThreads>();
    const int team =
        kBatch == 1 ? 0 : static_cast<int>(threadIdx.x) / kTeamThreads;
    const int teams =
        kBatch == 1 ? 1 : static_cast<int>(blockDim.x) / kTeamThreads;
    float squares[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) squares[b] = 0.0f;
    for (int q = thread; q < args.octets; q += kTeamThreads) {
      Octet x[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        x[b] = {};
        if (b < count && (b & (teams - 1)) == team) {
          x[b] = LoadOctet(input + b * args.cols, args.cols, q, true);
        }
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if ((b & (teams - 1)) == team) {
          planes[2 * b * args.octets + q] = x[b].low;
          planes[(2 * b + 1) * args.octets + q] = x[b].high;
          squares[b] = AddSquares(squares[b], x[b]);
        }
      }
    }
    if (!args.norm) {
      __syncthreads();
      return;
    }
    WaitForCopies();
    const int lane = LaneOfThread();
    constexpr int kLanesPerRow = kWarpSize / kBatch;
    const float total = SumLanes(squares, lane);
    const int row = lane / kLanesPerRow;
    if (lane % kLanesPerRow == 0 && (row & (teams - 1)) == team) {
      sums[row * kTeamWarps + thread / kWarpSize] = total;
    }
    __syncthreads();
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (b >= count || (b & (teams - 1)) != team) continue;
      const float inv = InvRms(sums + b * kTeamWarps, args.cols, args.norm_eps);
      for (int q = thread; q < args.octets; q += kTeamThreads) {
        float4& low = planes[2 * b * args.octets + q];
        float4& high = planes[(2 * b + 1) * args.octets + q];
        const Octet w = NormWeights(args, weights, q);
        low = Scale(low, inv, w.low);
        high = Scale(high, inv, w.high);
        if (normed != nullptr) {
          auto* to = reinterpret_cast<float4*>(normed + b * args.cols) + 2 * q;
          to[0] = low;
          to[1] = high;
        }
      }
    }
    __syncthreads();
  }
};

template <FloatPath kPath>
__device__ __forceinline__ auto WeightsOf(const FloatKernelArgs& args) {
  if constexpr (kPath == FloatPath::kPortable) {
    return StoredWeights{args.dtype, args.dtype, args.cols, args.octets};
  } else {
    return VectorWeights{args.row_bytes, args.octets};
  }
}

// The registers that as many teams a multiprocessor leave as ChooseFloat counts
// on, and its largest block.
constexpr int MaxThreads(int batch) {
  return batch == 1 ? 256 : batch == 2 ? 768 : 512;
}

template <typename Shape>
constexpr int MinBlocks() {
  if (Shape::kBatch > 1) return 1;
  return Shape::kWarps == 1 && Shape::kChunks == 8 ? 2 : 4;
}

template <FloatPath kPath, typename Shape>
__global__ void __launch_bounds__(MaxThreads(Shape::kBatch), MinBlocks<Shape>())
    FloatProductsKernel(const __grid_constant__ FloatKernelArgs args) {
  extern __shared__ float4 shared[];
  const int thread = static_cast<int>(threadIdx.x);
  constexpr bool kOneTeam =
      Shape::kMaxTeams == 1 && Shape::kThreads == kTeamThreads;
  const int teams =
      kOneTeam ? 1 : static_cast<int>(blockDim.x) / Shape::kThreads;
  const int team = kOneTeam ? 0 : thread / Shape::kThreads;
  const int64_t batch = blockIdx.y;
  const auto weights = WeightsOf<kPath>(args);

  constexpr int kInputRows = kPath == FloatPath::kShared ? Shape::kBatch : 0;
  float4* planes = shared;
  float4* norm_weights = planes + 2 * kInputRows * args.octets;
  const bool norm = kPath == FloatPath::kShared && args.norm;
  auto* norm_sums =
      reinterpret_cast<float*>(norm_weights + (norm ? 2 * args.octets : 0));
  float* partials = norm_sums + (norm ? Shape::kBatch * kTeamWarps : 0) +
                    team * Shape::kPartials;
  const InputBuilder<Shape::kBatch> builder = {args, planes, norm_weights,
                                               norm_sums};

  ProductSource<Shape::kRows> source = {
      args, static_cast<int>(blockIdx.x) * teams + team,
      static_cast<int>(gridDim.x) * teams, 0};
  RowGroup group;
  using Weights = std::remove_const_t<decltype(weights)>;
  DotTile<Shape, Weights> tile;
  const bool any = source.Next(group);
  if (any) LoadFirst(weights, source, group, tile);
  if constexpr (kPath != FloatPath::kPortable) {
    if (any && args.prefetch && ThreadOf<Shape::kThreads>() == 0) {
      // The rest of this group, or else the next one.
      RowGroup ahead = group;
      ProductSource<Shape::kRows> after = source;
      if (args.octets > Shape::kChunks * Shape::kThreads || after.Next(ahead)) {
        constexpr int kHalf = Shape::kRows / 2;
        const GroupRows to = source.Rows(ahead);
        PrefetchWeights(to.low,
                        (to.full ? kHalf : to.low_last + 1) * args.row_bytes);
        PrefetchWeights(to.high,
                        (to.full ? kHalf : to.high_last + 1) * args.row_bytes);
      }
    }
  }
  if constexpr (kPath == FloatPath::kShared) builder.BringNormWeights();
  DependencyWait();

  const int64_t live = __ldcg(args.live);
  int64_t first_in = batch * Shape::kBatch;
  int64_t first_out = first_in;
  int64_t rows = live - first_in;
  if (args.last_row) {
    first_in = live - 1;
    first_out = 0;
    rows = live > 0 ? 1 : 0;
  }
  const int count =
      static_cast<int>(rows < Shape::kBatch ? rows : int64_t{Shape::kBatch});
  if (count <= 0) return;
  const float* input = args.x + first_in * args.cols;
  if constexpr (kPath == FloatPath::kShared) {
    float* normed = args.normed != nullptr && blockIdx.x == 0
                        ? args.normed + first_in * args.cols
                        : nullptr;
    builder.Bring(input, count, normed);
  }
  if (!any) return;
  const ProductFinish<Shape::kRows> finish = {args, first_out, count};
  if constexpr (kPath == FloatPath::kShared) {
    const SharedInput from = {planes, args.octets};
    MultiplyGroups<Shape>(weights, from, source, finish, group, tile, partials);
  } else {
    const StreamedInput<kPath == FloatPath::kStreamed> from = {input, args.cols,
                                                               count};
    MultiplyGroups<Shape>(weights, from, source, finish, group, tile, partials);
  }
}

template <FloatPath kPath, typename Shape>
Status RunShape(Stream stream, const FloatConfig& config,
                const FloatKernelArgs& args) {
  auto* kernel = &FloatProductsKernel<kPath, Shape>;
  if (config.shared_bytes > (size_t{48} << 10)) {
    const Status status = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(config.shared_bytes));
    if (status != kOk) return status;
  }
  return LaunchRows(args.capacity, kernel,
                    dim3(static_cast<unsigned>(config.blocks),
                         static_cast<unsigned>(config.batches)),
                    dim3(static_cast<unsigned>(config.teams * kTeamThreads)),
                    config.shared_bytes, stream, args);
}

}  // namespace
}  // namespace signet::backend::gpu
