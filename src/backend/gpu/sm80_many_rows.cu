// Products of many f32 rows on tensor cores, exactly: an f32 number is the sum
// of three bf16 ones, products of bf16 are exact in f32, sums of 32 are taken
// in the tensor cores and sums of these in f32. A block takes a tile of input
// rows and of weight rows over their whole length; inputs are cut on their way
// to shared memory.

#include <algorithm>
#include <cstdint>

#include "backend/gpu/bf16_parts.cuh"
#include "backend/gpu/float_config.h"
#include "backend/gpu/many_rows.h"
#include "backend/gpu/reduce.cuh"
#include "backend/gpu/sm80_mma.cuh"

namespace signet::backend::gpu {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = 32;     // of the input
constexpr int kColumns = 64;  // rows of weights
constexpr int kStep = 64;     // elements of a row, 128 bytes of bf16
constexpr int kChunk = 32;    // elements that the tensor cores sum up

// Of a warp, 2 x 2 of them: tiles of 16 rows of weights and of 8 of the input.
constexpr int kColumnTiles = kColumns / (2 * 16);
constexpr int kRowTiles = kRows / (2 * 8);

// Rows of 128 bytes; piece c of 16 bytes of row r lies at piece c ^ (r % 8).
constexpr int kRowBytes = 2 * kStep;
constexpr int kInputBytes = kRows * kRowBytes;  // of a part
constexpr int kWeightBytes = kColumns * kRowBytes;
constexpr int kStageBytes = kBF16Parts * kInputBytes + kWeightBytes;

// What a thread brings of a step: one octet of each sixteenth row.
constexpr int kRowsApart = kThreads / 8;
constexpr int kInputOctets = kRows / kRowsApart;
constexpr int kWeightOctets = kColumns / kRowsApart;

struct ManyArgs {
  const int32_t* live;
  int64_t capacity;
  bool last_row;  // only row *live - 1, to row 0 of out
  const float* x;
  const char* weight;
  float* out;
  int rows;  // of the weights
  int cols;
};

/// A thread's share of a step, on its way.
struct Pieces {
  Octet inputs[kInputOctets];
  uint4 weights[kWeightOctets];
};

class Bringer {
 public:
  __device__ Bringer(const ManyArgs& args, int64_t first_input, int num_inputs,
                     int first_weight)
      : row_(static_cast<int>(threadIdx.x) / 8),
        piece_(static_cast<int>(threadIdx.x) % 8),
        cols_(args.cols),
        inputs_(args.x + (first_input + row_) * int64_t{cols_} + 8 * piece_),
        weights_(args.weight +
                 2 * ((first_weight + row_) * int64_t{cols_} + 8 * piece_)),
        num_inputs_(num_inputs - row_),
        num_weights_(args.rows - first_weight - row_) {}

  /// Rows that there are not are zeros.
  __device__ void LoadWeights(int k, Pieces& pieces) const {
#pragma unroll
    for (int i = 0; i < kWeightOctets; ++i) {
      const int row = i * kRowsApart;
      pieces.weights[i] = LoadWeights16(
          weights_ + 2 * (int64_t{row} * cols_ + k), row < num_weights_);
    }
  }
  __device__ void LoadInputs(int k, Pieces& pieces) const {
#pragma unroll
    for (int i = 0; i < kInputOctets; ++i) {
      const int row = i * kRowsApart;
      pieces.inputs[i] = {};
      if (row < num_inputs_) {
        pieces.inputs[i] =
            LoadOctet(inputs_ + int64_t{row} * cols_ + k, 8, 0, true);
      }
    }
  }
  __device__ void Store(const Pieces& pieces, unsigned char* stage) const {
    unsigned char* to = stage + row_ * kRowBytes + ((piece_ ^ row_ % 8) << 4);
#pragma unroll
    for (int i = 0; i < kInputOctets; ++i) {
      const Octet& octet = pieces.inputs[i];
      uint32_t words[4][kBF16Parts];
      CutPair(octet.low.x, octet.low.y, words[0]);
      CutPair(octet.low.z, octet.low.w, words[1]);
      CutPair(octet.high.x, octet.high.y, words[2]);
      CutPair(octet.high.z, octet.high.w, words[3]);
#pragma unroll
      for (int p = 0; p < kBF16Parts; ++p) {
        *reinterpret_cast<uint4*>(to + p * kInputBytes +
                                  i * kRowsApart * kRowBytes) =
            make_uint4(words[0][p], words[1][p], words[2][p], words[3][p]);
      }
    }
#pragma unroll
    for (int i = 0; i < kWeightOctets; ++i) {
      *reinterpret_cast<uint4*>(to + kBF16Parts * kInputBytes +
                                i * kRowsApart * kRowBytes) = pieces.weights[i];
    }
  }

 private:
  int row_;
  int piece_;
  int cols_;
  const float* inputs_;
  const char* weights_;
  int num_inputs_;  // rows from row_ on
  int num_weights_;
};

using Sums = float[kColumnTiles][kRowTiles][4];

/// A warp's products of a stage; of a chunk the low parts first.
class Multiplier {
 public:
  __device__ explicit Multiplier(const unsigned char* stages) {
    const int lane = LaneOfThread();
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    // Row of a matrix of ldmatrix, and which matrix: weights have rows then
    // pieces, the input pieces then rows.
    const int row = lane % 8;
    const int low = lane / 8 % 2;
    const int high = lane / 16;
    const uint32_t base = SharedAddress(stages);
    weights_ = base + kBF16Parts * kInputBytes +
               static_cast<uint32_t>(
                   (warp / 2 * kColumnTiles * 16 + low * 8 + row) * kRowBytes);
    weight_piece_ = static_cast<uint32_t>(high ^ row) << 4;
    inputs_ =
        base + static_cast<uint32_t>(
                   (warp % 2 * kRowTiles * 8 + high * 8 + row) * kRowBytes);
    input_piece_ = static_cast<uint32_t>(low ^ row) << 4;
  }
  __device__ __forceinline__ void Multiply(int stage, Sums& sums) const {
    const auto offset = static_cast<uint32_t>(stage * kStageBytes);
#pragma unroll
    for (int chunk = 0; chunk < kStep / kChunk; ++chunk) {
      // The two pieces of 16 elements differ from those of the first 16 in
      // bits that `row` in the swizzle flips alike.
      uint32_t w[2][kColumnTiles][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto flip = static_cast<uint32_t>(2 * chunk + half) << 5;
#pragma unroll
        for (int m = 0; m < kColumnTiles; ++m) {
          LoadFragments(w[half][m], weights_ + offset + m * 16 * kRowBytes +
                                        (weight_piece_ ^ flip));
        }
      }
      float d[kColumnTiles][kRowTiles][4] = {};
#pragma unroll
      for (int p = kBF16Parts - 1; p >= 0; --p) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const auto flip = static_cast<uint32_t>(2 * chunk + half) << 5;
          uint32_t x[kRowTiles / 2][4];
#pragma unroll
          for (int n = 0; n < kRowTiles / 2; ++n) {
            LoadFragments(x[n], inputs_ + offset + p * kInputBytes +
                                    n * 16 * kRowBytes + (input_piece_ ^ flip));
          }
#pragma unroll
          for (int m = 0; m < kColumnTiles; ++m) {
#pragma unroll
            for (int n = 0; n < kRowTiles; ++n) {
              const uint32_t(&a)[4] = w[half][m];
              MultiplyTile(d[m][n], a[0], a[1], a[2], a[3], x[n / 2][n % 2 * 2],
                           x[n / 2][n % 2 * 2 + 1]);
            }
          }
        }
      }
#pragma unroll
      for (int m = 0; m < kColumnTiles; ++m) {
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            sums[m][n][i] = __fadd_rn(sums[m][n][i], d[m][n][i]);
          }
        }
      }
    }
  }

 private:
  uint32_t weights_;
  uint32_t weight_piece_;
  uint32_t inputs_;
  uint32_t input_piece_;
};

// Grid: tile of weights, tile of inputs.
__global__ void __launch_bounds__(kThreads, 3)
    ManyRowsKernel(const __grid_constant__ ManyArgs args) {
  __shared__ alignas(128) unsigned char stages[2 * kStageBytes];
  const int first_weight = static_cast<int>(blockIdx.x) * kColumns;
  DependencyWait();
  const int live = static_cast<int>(
      min(static_cast<int64_t>(max(__ldcg(args.live), 0)), args.capacity));
  const int count = args.last_row ? min(live, 1) : live;
  const int first_row = static_cast<int>(blockIdx.y) * kRows;
  const int rows = min(kRows, count - first_row);
  if (rows <= 0) return;
  const Bringer bringer(args, args.last_row ? live - 1 : first_row, rows,
                        first_weight);
  const Multiplier multiplier(stages);
  Pieces pieces;
  bringer.LoadInputs(0, pieces);
  bringer.LoadWeights(0, pieces);
  Sums sums = {};
  int stage = 0;
#pragma unroll 1
  for (int k = 0; k < args.cols; k += kStep) {
    bringer.Store(pieces, stages + stage * kStageBytes);
    if (k + kStep < args.cols) {
      bringer.LoadInputs(k + kStep, pieces);
      bringer.LoadWeights(k + kStep, pieces);
    }
    // Nobody still multiplies the other stage once all are here.
    __syncthreads();
    multiplier.Multiply(stage, sums);
    stage ^= 1;
  }

  const int lane = LaneOfThread();
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
#pragma unroll
  for (int m = 0; m < kColumnTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = first_weight + (warp / 2 * kColumnTiles + m) * 16 +
                           lane / 4 + i / 2 * 8;
        const int row = (warp % 2 * kRowTiles + n) * 8 + lane % 4 * 2 + i % 2;
        if (row < rows && column < args.rows) {
          args.out[int64_t{first_row + row} * args.rows + column] =
              sums[m][n][i];
        }
      }
    }
  }
}

bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
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
  const int64_t rows = products.last_row ? 1 : products.capacity;
  return LaunchRows(
      products.capacity, ManyRowsKernel,
      dim3(static_cast<unsigned>((part.rows + kColumns - 1) / kColumns),
           static_cast<unsigned>((rows + kRows - 1) / kRows)),
      dim3(kThreads), 0, stream, args);
}

}  // namespace signet::backend::gpu
