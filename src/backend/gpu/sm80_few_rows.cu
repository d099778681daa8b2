// Products of a few f32 rows on tensor cores, exactly: an f32 number is the sum
// of three bf16 ones, products of bf16 are exact in f32, and sums of 32 are
// taken in the tensor cores, of these in f32. A block takes some weight rows at
// a time; its warps share their length. Weights go from memory to registers,
// the next ones while the last are multiplied; the input lies in shared memory
// as the fragments that lanes need.

#include <algorithm>
#include <cstdint>

#include "backend/gpu/bf16_parts.cuh"
#include "backend/gpu/dot.cuh"
#include "backend/gpu/few_rows.h"
#include "backend/gpu/float_config.h"
#include "backend/gpu/math.cuh"
#include "backend/gpu/reduce.cuh"
#include "backend/gpu/sm80_mma.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kRows = 8;       // of the input, at most
constexpr int kTileRows = 16;  // of weights
constexpr int kChunk = 32;     // elements of a row, 16 bytes a lane
constexpr int kParts = kBF16Parts;
constexpr int kInFlight = 8;    // chunks of a tile that a warp loads ahead
constexpr int kRowStride = 20;  // of a warp's sums: no two lanes on one bank
constexpr int kSums = kRows * kRowStride;
constexpr int kMine = kTeamThreads * kRows / kThreads;  // octets of a thread

/// Rows of kChunks chunks a warp.
template <int kWarpChunks>
struct FewShape {
  static constexpr int kChunks = kWarpChunks;
  static constexpr int kTiles = kInFlight / kChunks;  // of a step
  static constexpr int kCols = kChunks * kChunk * kWarps;
  static_assert(kCols / 8 == kTeamThreads);  // an octet a thread of Norm
  static constexpr int kFragments = kCols / kChunk * kWarpSize;  // of a part
  static constexpr int kStepSums = kWarps * kTiles * kSums;
  static constexpr size_t kBytes =
      size_t{16} * kParts * kFragments + size_t{4} * 2 * kStepSums;
};

struct FewArgs {
  struct Part {
    const char* weight;
    float* out;
    int rows;
    int first_step;
  };
  const int32_t* live;
  const float* x;
  bool last_row;
  const uint4* norm_weight;  // bf16, or null: no norm
  float norm_offset;
  float norm_eps;
  float* normed;          // or null
  const char* up_weight;  // of the last part, which is gate, or null
  const float* residual;  // of the only part, or null
  int num_parts;
  int num_steps;
  Part parts[kMaxFusedProducts];
};

/// The rows of a step: kTiles tiles of 16 rows of a part, or of 8 rows of gate
/// and the same of up.
template <typename Shape>
struct Step {
  int part = 0;
  int row = 0;
  bool pair = false;

  __device__ __forceinline__ bool Find(const FewArgs& args, int index) {
    if (index >= args.num_steps) return false;
#pragma unroll 1
    while (part + 1 < args.num_parts &&
           index >= args.parts[part + 1].first_step) {
      ++part;
    }
    pair = args.up_weight != nullptr && part + 1 == args.num_parts;
    row = (index - args.parts[part].first_step) * Rows();
    return true;
  }
  /// Output rows of the step.
  __device__ __forceinline__ int Rows() const {
    return Shape::kTiles * kTileRows / (pair ? 2 : 1);
  }
  /// This lane's first octet of tile row `half` * 8 + g of tile `tile`. Rows
  /// past the last repeat it.
  __device__ __forceinline__ const char* At(const FewArgs& args, int tile,
                                            int half) const {
    const int lane = LaneOfThread();
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    const FewArgs::Part& matrix = args.parts[part];
    const int in_tile = pair ? 8 * tile : kTileRows * tile + 8 * half;
    const int at = min(row + in_tile + lane / 4, matrix.rows - 1);
    const char* base = pair && half == 1 ? args.up_weight : matrix.weight;
    return base + int64_t{2} * at * Shape::kCols +
           warp * Shape::kChunks * kChunk * 2 + lane % 4 * 16;
  }
};

/// A lane's weights of a step.
template <typename Shape>
struct Weights {
  uint4 at[Shape::kTiles][Shape::kChunks][2];

  __device__ __forceinline__ void Load(const FewArgs& args,
                                       const Step<Shape>& step) {
#pragma unroll
    for (int m = 0; m < Shape::kTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const char* from = step.At(args, m, half);
#pragma unroll
        for (int c = 0; c < Shape::kChunks; ++c) {
          at[m][c][half] = LoadWeights(from + c * kChunk * 2);
        }
      }
    }
  }
};

/// Factors of the norms of rows, from the squares of their octets, in the order
/// of Norm. All threads call it.
template <typename Shape>
__device__ __forceinline__ float InvOfRow(const float (&squares)[kMine],
                                          float eps) {
  __shared__ float of_octets[kRows][kTeamThreads];
  __shared__ float warp_sums[kRows][kTeamWarps];
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    of_octets[thread % kRows][thread / kRows + i * kThreads / kRows] =
        squares[i];
  }
  __syncthreads();
  const int of_team = ThreadOf<kTeamThreads>();
#pragma unroll
  for (int i = 0; i < kRows * kTeamThreads / kThreads; ++i) {
    const int row = thread / kTeamThreads + i * (kThreads / kTeamThreads);
    const float total = SumLanes(of_octets[row][of_team], LaneOfThread());
    if (LaneOfThread() == 0) warp_sums[row][of_team / kWarpSize] = total;
  }
  __syncthreads();
  return InvRms(warp_sums[thread % kRows], Shape::kCols, eps);
}

/// The input rows in shared memory: of every part the fragments of all chunks;
/// lane (g, q) has octet q of row g. Zeros stand for rows past `count`. A
/// thread has kMine octets of one row.
template <typename Shape>
__device__ __forceinline__ void BringRows(const FewArgs& args, const float* x,
                                          int count, float* normed,
                                          uint4* fragments) {
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread % kRows;
  const auto octet_of = [&](int i) {
    return thread / kRows + i * (kThreads / kRows);
  };
  Octet octets[kMine];
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    octets[i] = {};
    if (row < count) {
      octets[i] =
          LoadOctet(x + row * Shape::kCols, Shape::kCols, octet_of(i), true);
    }
  }
  if (args.norm_weight != nullptr) {
    float squares[kMine];
#pragma unroll
    for (int i = 0; i < kMine; ++i) squares[i] = AddSquares(0.0f, octets[i]);
    const float inv = InvOfRow<Shape>(squares, args.norm_eps);
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const uint4 stored = __ldg(args.norm_weight + octet_of(i));
      const auto plus = [&](const float4& w) {
        return make_float4(
            __fadd_rn(args.norm_offset, w.x), __fadd_rn(args.norm_offset, w.y),
            __fadd_rn(args.norm_offset, w.z), __fadd_rn(args.norm_offset, w.w));
      };
      octets[i] = {
          Scale(octets[i].low, inv, plus(VectorWeights::Half<0>(stored))),
          Scale(octets[i].high, inv, plus(VectorWeights::Half<1>(stored)))};
      if (normed != nullptr && row < count) {
        auto* to = reinterpret_cast<float4*>(normed + row * Shape::kCols) +
                   2 * octet_of(i);
        to[0] = octets[i].low;
        to[1] = octets[i].high;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    const int q = octet_of(i);
    // Of a row that is none the norm's factor may be anything.
    const Octet octet = row < count ? octets[i] : Octet{};
    const float values[8] = {octet.low.x,  octet.low.y,  octet.low.z,
                             octet.low.w,  octet.high.x, octet.high.y,
                             octet.high.z, octet.high.w};
    uint32_t words[4][kParts];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      CutPair(values[2 * j], values[2 * j + 1], words[j]);
    }
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      fragments[p * Shape::kFragments + q / 4 * kWarpSize + row * 4 + q % 4] =
          make_uint4(words[0][p], words[1][p], words[2][p], words[3][p]);
    }
  }
  __syncthreads();
}

/// Multiplies a chunk of a tile; the low parts first.
__device__ __forceinline__ void AddChunk(const uint4 (&w)[2],
                                         const uint4 (&x)[kParts],
                                         float (&sums)[4]) {
  float d[4] = {};
#pragma unroll
  for (int p = kParts - 1; p >= 0; --p) {
    MultiplyTile(d, w[0].x, w[1].x, w[0].y, w[1].y, x[p].x, x[p].y);
    MultiplyTile(d, w[0].z, w[1].z, w[0].w, w[1].w, x[p].z, x[p].w);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = __fadd_rn(sums[i], d[i]);
}

/// The sum over the warps of tile row `row`, input row `n`.
template <typename Shape>
__device__ __forceinline__ float SumOver(const float* sums, int tile, int n,
                                         int row) {
  float s[kWarps];
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    s[w] = sums[(w * Shape::kTiles + tile) * kSums + n * kRowStride + row];
  }
#pragma unroll
  for (int width = kWarps / 2; width > 0; width /= 2) {
#pragma unroll
    for (int w = 0; w < width; ++w) s[w] = __fadd_rn(s[w], s[w + width]);
  }
  return s[0];
}

/// Adds up the warps and writes what a step gives.
template <typename Shape>
__device__ __forceinline__ void FinishStep(const FewArgs& args,
                                           const Step<Shape>& step,
                                           const float* sums, int64_t first_out,
                                           int count) {
  const FewArgs::Part& part = args.parts[step.part];
  const int rows = step.Rows();
  for (int i = static_cast<int>(threadIdx.x); i < rows * kRows; i += kThreads) {
    const int n = i / rows;
    const int r = i - n * rows;
    if (n >= count || step.row + r >= part.rows) continue;
    const int64_t at = (first_out + n) * part.rows + step.row + r;
    if (step.pair) {
      const float gate = SumOver<Shape>(sums, r / 8, n, r % 8);
      const float up = SumOver<Shape>(sums, r / 8, n, 8 + r % 8);
      part.out[at] = __fmul_rn(Silu(gate), up);
      continue;
    }
    float value = SumOver<Shape>(sums, r / kTileRows, n, r % kTileRows);
    if (args.residual != nullptr) {
      value = __fadd_rn(__ldcg(args.residual + at), value);
    }
    part.out[at] = value;
  }
}

template <typename Shape>
__global__ void __launch_bounds__(kThreads, 1)
    FewRowsKernel(const __grid_constant__ FewArgs args) {
  extern __shared__ uint4 fragments[];
  auto* sums = reinterpret_cast<float*>(fragments + kParts * Shape::kFragments);
  const int lane = LaneOfThread();
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  Step<Shape> step;
  int index = static_cast<int>(blockIdx.x);
  bool any = step.Find(args, index);
  Weights<Shape> weights;
  if (any) weights.Load(args, step);
  DependencyWait();

  const int live = __ldcg(args.live);
  if (live <= 0) return;
  const int count = args.last_row ? 1 : min(live, kRows);
  const int64_t first = args.last_row ? (live - 1) * int64_t{Shape::kCols} : 0;
  float* normed =
      args.normed != nullptr && blockIdx.x == 0 ? args.normed + first : nullptr;
  BringRows<Shape>(args, args.x + first, count, normed, fragments);
  const uint4* own = fragments + warp * Shape::kChunks * kWarpSize + lane;
  int turn = 0;
#pragma unroll 1
  while (any) {
    Step<Shape> next = step;
    index += static_cast<int>(gridDim.x);
    any = next.Find(args, index);
    float totals[Shape::kTiles][4] = {};
#pragma unroll
    for (int c = 0; c < Shape::kChunks; ++c) {
      uint4 x[kParts];
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        x[p] = own[p * Shape::kFragments + c * kWarpSize];
      }
#pragma unroll
      for (int m = 0; m < Shape::kTiles; ++m) {
        AddChunk(weights.at[m][c], x, totals[m]);
      }
    }
    if (any) weights.Load(args, next);
    // Two sets by turns: a set is read while the other is written.
    float* set = sums + turn * Shape::kStepSums;
    turn ^= 1;
#pragma unroll
    for (int m = 0; m < Shape::kTiles; ++m) {
      float* to = set + (warp * Shape::kTiles + m) * kSums +
                  lane % 4 * 2 * kRowStride + lane / 4;
      to[0] = totals[m][0];
      to[kRowStride] = totals[m][1];
      to[8] = totals[m][2];
      to[kRowStride + 8] = totals[m][3];
    }
    __syncthreads();
    FinishStep<Shape>(args, step, set, 0, count);
    step = next;
  }
}

template <int kChunks>
Status Run(Stream stream, int num_sms, const FloatProducts& products) {
  using Shape = FewShape<kChunks>;
  FewArgs args = {};
  args.live = products.live;
  args.x = products.x;
  args.last_row = products.last_row;
  if (products.norm) {
    args.norm_weight = static_cast<const uint4*>(products.norm_weight.data);
    args.norm_offset = products.norm_offset;
    args.norm_eps = products.norm_eps;
    args.normed = products.normed;
  }
  args.up_weight = static_cast<const char*>(products.up_weight);
  args.residual = products.residual;
  args.num_parts = products.num_parts;
  int64_t steps = 0;
  for (int p = 0; p < products.num_parts; ++p) {
    const FloatPart& part = products.parts[static_cast<size_t>(p)];
    const bool pair =
        products.up_weight != nullptr && p + 1 == products.num_parts;
    const int64_t rows = Shape::kTiles * kTileRows / (pair ? 2 : 1);
    args.parts[p] = {static_cast<const char*>(part.weight), part.out,
                     static_cast<int>(part.rows), static_cast<int>(steps)};
    steps += (part.rows + rows - 1) / rows;
  }
  args.num_steps = static_cast<int>(steps);
  const Status status = cudaFuncSetAttribute(
      &FewRowsKernel<Shape>, cudaFuncAttributeMaxDynamicSharedMemorySize,
      static_cast<int>(Shape::kBytes));
  if (status != kOk) return status;
  return LaunchRows(
      products.capacity, &FewRowsKernel<Shape>,
      dim3(static_cast<unsigned>(std::min<int64_t>(num_sms, steps))),
      dim3(kThreads), Shape::kBytes, stream, args);
}

bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

}  // namespace

bool TakesFewRows(const FloatProducts& products) {
  if (products.dtype != tensor::DType::kBF16 ||
      !IsFewRows(products.capacity, products.cols) || !IsAligned(products.x) ||
      !IsAligned(products.up_weight) || !IsAligned(products.normed)) {
    return false;
  }
  if (products.norm && (products.norm_weight.dtype != tensor::DType::kBF16 ||
                        !IsAligned(products.norm_weight.data))) {
    return false;
  }
  for (int p = 0; p < products.num_parts; ++p) {
    const FloatPart& part = products.parts[static_cast<size_t>(p)];
    if (part.rows == 0 || !IsAligned(part.weight)) return false;
  }
  return products.num_parts > 0;
}

Status MultiplyFewRows(Stream stream, int num_sms,
                       const FloatProducts& products) {
  static_assert(FewShape<4>::kCols == kFewColumns);
  return Run<4>(stream, num_sms, products);
}

}  // namespace signet::backend::gpu
