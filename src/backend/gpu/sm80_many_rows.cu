// Products of many f32 rows on tensor cores, exactly: an f32 number is the sum
// of three bf16 ones, products of bf16 are exact in f32, sums of 32 are taken
// in the tensor cores and sums of these in f32. A block takes a tile of input
// rows and of weight rows over their whole length; inputs are cut on their way
// to shared memory, weights are copied there. Every element is summed in the
// same order whatever the tile: few rows have small ones, to be on all
// multiprocessors, and many rows large ones, to read shared memory less.

#include <algorithm>
#include <cstdint>

#include "backend/gpu/float_config.h"
#include "backend/gpu/many_rows.h"
#include "backend/gpu/reduce.cuh"
#include "backend/gpu/sm80_many_rows.cuh"
#include "backend/gpu/sm80_mma.cuh"

namespace signet::backend::gpu {
namespace {

using namespace many_rows;  // NOLINT(google-build-using-namespace)

template <typename Tile>
using Sums = float[Tile::kColumnTiles][Tile::kRowTiles][4];

/// A warp's products of a step; of a chunk the low parts first.
template <typename Tile>
class Multiplier {
 public:
  __device__ Multiplier(const unsigned char* stages, int warp, int lane) {
    // Row of a matrix of ldmatrix, and which matrix: weights have rows then
    // pieces, the input pieces then rows.
    const int row = lane % 8;
    const int low = lane / 8 % 2;
    const int high = lane / 16;
    const uint32_t base = SharedAddress(stages);
    const int column =
        warp / Tile::kWarpsOfRows * Tile::kColumnTiles * 16 + low * 8 + row;
    weights_ = base + static_cast<uint32_t>(kWeightsAt + column * kRowBytes);
    weight_piece_ = static_cast<uint32_t>(high ^ row) << 4;
    const int input =
        warp % Tile::kWarpsOfRows * Tile::kRowTiles * 8 + high * 8 + row;
    inputs_ = base + static_cast<uint32_t>(input * kRowBytes);
    input_piece_ = static_cast<uint32_t>(low ^ row) << 4;
  }
  __device__ __forceinline__ void Multiply(int input_stage, int weight_stage,
                                           Sums<Tile>& sums) const {
    const uint32_t inputs =
        inputs_ + static_cast<uint32_t>(input_stage * kInputStageBytes);
    const uint32_t weights =
        weights_ + static_cast<uint32_t>(weight_stage * kWeightStageBytes);
#pragma unroll
    for (int slab = 0; slab < Tile::kSlabs; ++slab) {
#pragma unroll Tile::kUnrolled
      for (int chunk = 0; chunk < kChunks; chunk += Tile::kTogether) {
        MultiplyChunks(inputs + slab * kBF16Parts * Tile::kRows * kRowBytes,
                       weights + slab * Tile::kColumns * kRowBytes, chunk,
                       sums);
      }
    }
  }

 private:
  /// kTogether chunks of a slab from `first` on.
  __device__ __forceinline__ void MultiplyChunks(uint32_t inputs,
                                                 uint32_t weights, int first,
                                                 Sums<Tile>& sums) const {
    // The two pieces of 16 elements differ from those of the first 16 in bits
    // that `row` in the swizzle flips alike.
    const auto flip_of = [&](int c, int half) {
      return static_cast<uint32_t>(2 * (first + c) + half) << 5;
    };
    uint32_t w[Tile::kTogether][2][Tile::kColumnTiles][4];
#pragma unroll
    for (int c = 0; c < Tile::kTogether; ++c) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int m = 0; m < Tile::kColumnTiles; ++m) {
          LoadFragments(w[c][half][m], weights + m * 16 * kRowBytes +
                                           (weight_piece_ ^ flip_of(c, half)));
        }
      }
    }
    float d[Tile::kTogether][Tile::kColumnTiles][Tile::kRowTiles][4] = {};
#pragma unroll
    for (int p = kBF16Parts - 1; p >= 0; --p) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int c = 0; c < Tile::kTogether; ++c) {
          uint32_t x[Tile::kRowTiles / 2][4];
#pragma unroll
          for (int n = 0; n < Tile::kRowTiles / 2; ++n) {
            LoadFragments(x[n], inputs +
                                    (p * Tile::kRows + n * 16) * kRowBytes +
                                    (input_piece_ ^ flip_of(c, half)));
          }
#pragma unroll
          for (int m = 0; m < Tile::kColumnTiles; ++m) {
#pragma unroll
            for (int n = 0; n < Tile::kRowTiles; ++n) {
              const uint32_t(&a)[4] = w[c][half][m];
              MultiplyTile(d[c][m][n], a[0], a[1], a[2], a[3],
                           x[n / 2][n % 2 * 2], x[n / 2][n % 2 * 2 + 1]);
            }
          }
        }
      }
    }
#pragma unroll
    for (int c = 0; c < Tile::kTogether; ++c) {
#pragma unroll
      for (int m = 0; m < Tile::kColumnTiles; ++m) {
#pragma unroll
        for (int n = 0; n < Tile::kRowTiles; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            sums[m][n][i] = __fadd_rn(sums[m][n][i], d[c][m][n][i]);
          }
        }
      }
    }
  }

  uint32_t weights_;
  uint32_t weight_piece_;
  uint32_t inputs_;
  uint32_t input_piece_;
};

/// A warp's sums; of the block's inputs there are `rows`, from row `first_row`
/// of the output on.
template <typename Tile>
__device__ __forceinline__ void StoreSums(const ManyArgs& args,
                                          const Sums<Tile>& sums, int first_row,
                                          int rows, int first_weight, int warp,
                                          int lane) {
#pragma unroll
  for (int m = 0; m < Tile::kColumnTiles; ++m) {
#pragma unroll
    for (int n = 0; n < Tile::kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column =
            first_weight +
            (warp / Tile::kWarpsOfRows * Tile::kColumnTiles + m) * 16 +
            lane / 4 + i / 2 * 8;
        const int row = (warp % Tile::kWarpsOfRows * Tile::kRowTiles + n) * 8 +
                        lane % 4 * 2 + i % 2;
        if (row < rows && column < args.rows) {
          args.out[int64_t{first_row + row} * args.rows + column] =
              sums[m][n][i];
        }
      }
    }
  }
}

// Grid: tile of weights, tile of inputs.
template <typename Tile>
__global__ void __launch_bounds__(kThreads, 1)
    ManyRowsKernel(const __grid_constant__ ManyArgs args) {
  extern __shared__ __align__(128) unsigned char stages[];
  const int lane = LaneOfThread();
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const bool multiplies = warp < Tile::kMultiplyWarps;
  const bool brings = Tile::kAllBring || !multiplies;
  // Of two warps of a scheduler one brings while the other multiplies.
  const bool brings_first = !Tile::kAllBring || warp < kWarps / 2;
  const int bringer =
      static_cast<int>(threadIdx.x) - (kThreads - Tile::kBringers);
  const int first_weight = static_cast<int>(blockIdx.x) * Tile::kColumns;
  const WeightBringer<Tile> weights(args, first_weight, bringer,
                                    stages + kWeightsAt);
  if (brings) {
#pragma unroll
    for (int i = 0; i < kWeightStages - 1; ++i) {
      weights.Start(i * Tile::kStep, i);
    }
  }

  DependencyWait();
  const int live = static_cast<int>(
      min(static_cast<int64_t>(max(__ldcg(args.live), 0)), args.capacity));
  const int count = args.last_row ? min(live, 1) : live;
  const int first_row = static_cast<int>(blockIdx.y) * Tile::kRows;
  const int rows = min(Tile::kRows, count - first_row);
  if (rows <= 0) {
    WaitCopyGroups<0>();
    return;
  }
  const InputBringer<Tile> inputs(args, args.last_row ? live - 1 : first_row,
                                  rows, bringer, stages);
  const Multiplier<Tile> multiplier(stages, warp, lane);
  Quads<Tile> quads;
  if (brings) {
    inputs.Load(0, quads);
    inputs.Store(quads, 0);
    inputs.Load(Tile::kStep, quads);
  }
  Sums<Tile> sums = {};
  int input_stage = 0;
  int weight_stage = 0;
#pragma unroll 1
  for (int k = 0; k < args.cols; k += Tile::kStep) {
    // This step's copies are there, and nobody multiplies the last one's any
    // more once all are here.
    WaitCopyGroups<kWeightStages - 2>();
    __syncthreads();
    const int last_stage =
        weight_stage == 0 ? kWeightStages - 1 : weight_stage - 1;
    const auto bring_inputs = [&] {
      inputs.Store(quads, input_stage ^ 1);
      inputs.Load(k + 2 * Tile::kStep, quads);
    };
    if (brings) {
      weights.Start(k + (kWeightStages - 1) * Tile::kStep, last_stage);
      if (brings_first) bring_inputs();
    }
    if (multiplies) multiplier.Multiply(input_stage, weight_stage, sums);
    if (brings && !brings_first) bring_inputs();
    input_stage ^= 1;
    weight_stage = weight_stage == kWeightStages - 1 ? 0 : weight_stage + 1;
  }
  if (multiplies) {
    StoreSums<Tile>(args, sums, first_row, rows, first_weight, warp, lane);
  }
}

bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

template <typename Tile>
Status LaunchTile(Stream stream, const ManyArgs& args, int64_t inputs) {
  const Status status = cudaFuncSetAttribute(
      ManyRowsKernel<Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize,
      kSharedBytes);
  if (status != kOk) return status;
  const int64_t rows = args.rows;
  return LaunchRows(
      args.capacity, ManyRowsKernel<Tile>,
      dim3(static_cast<unsigned>((rows + Tile::kColumns - 1) / Tile::kColumns),
           static_cast<unsigned>((inputs + Tile::kRows - 1) / Tile::kRows)),
      dim3(kThreads), kSharedBytes, stream, args);
}

}  // namespace

bool TakesManyRows(const FloatProducts& products) {
  if (products.dtype != tensor::DType::kBF16 || products.norm ||
      products.up_weight != nullptr || products.residual != nullptr ||
      !IsAligned(products.x) || products.num_parts != 1) {
    return false;
  }
  const FloatPart& part = products.parts[0];
  return IsManyRows(products.capacity, part.rows, products.cols) &&
         IsAligned(part.weight);
}

Status MultiplyManyRows(Stream stream, const FloatProducts& products) {
  const FloatPart& part = products.parts[0];
  const ManyArgs args = {.live = products.live,
                         .capacity = products.capacity,
                         .last_row = products.last_row,
                         .x = products.x,
                         .weight = static_cast<const char*>(part.weight),
                         .out = part.out,
                         .rows = static_cast<int>(part.rows),
                         .cols = static_cast<int>(products.cols)};
  const int64_t inputs = products.last_row ? 1 : products.capacity;
  const ManyTile tile = ChooseManyTile(inputs, part.rows);
  if (tile == kLargeTile) return LaunchTile<LargeTile>(stream, args, inputs);
  if (tile == kMiddleTile) return LaunchTile<MiddleTile>(stream, args, inputs);
  return LaunchTile<SmallTile>(stream, args, inputs);
}

}  // namespace signet::backend::gpu
