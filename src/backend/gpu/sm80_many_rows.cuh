#pragma once
// Tiles of products of many f32 rows, and how their operands come to shared
// memory: inputs by way of registers, cut into bf16 parts; weights by copies.
// Device code only.

#include <cstdint>

#include "backend/gpu/bf16_parts.cuh"
#include "backend/gpu/float_config.h"
#include "backend/gpu/sm80_mma.cuh"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu::many_rows {

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / kWarpSize;
inline constexpr int kSlab = 64;   // elements of a row, 128 bytes of bf16
inline constexpr int kChunk = 32;  // elements that the tensor cores sum up
inline constexpr int kChunks = kSlab / kChunk;

// A slab's rows are 128 bytes; piece c of 16 bytes of row r lies at piece
// c ^ (r % 8).
inline constexpr int kRowBytes = 2 * kSlab;

// Stages of every tile: as many slabs as make 64 rows of the input and 256 of
// weights, by slab.
inline constexpr int kInputRows = 64;
inline constexpr int kWeightRows = 256;
inline constexpr int kInputStages = 2;
inline constexpr int kWeightStages = 3;
inline constexpr int kInputStageBytes = kBF16Parts * kInputRows * kRowBytes;
inline constexpr int kWeightStageBytes = kWeightRows * kRowBytes;
inline constexpr int kWeightsAt = kInputStages * kInputStageBytes;
inline constexpr int kSharedBytes =
    kWeightsAt + kWeightStages * kWeightStageBytes;

/// A block's tile: rows of the input and of weights, and its warps. Those that
/// do not multiply bring operands; if all multiply, all bring.
template <ManyTile kTile, int kMultipliers, int kRowWarps, int kTogetherChunks>
struct TileOf {
  static constexpr int kRows = kTile.inputs;
  static constexpr int kColumns = kTile.weights;
  static constexpr int kSlabs = kInputRows / kRows;  // of a step
  static constexpr int kStep = kSlabs * kSlab;
  static_assert(kRows * kSlabs == kInputRows);
  static_assert(kColumns * kSlabs == kWeightRows);

  static constexpr int kMultiplyWarps = kMultipliers;
  static constexpr bool kAllBring = kMultipliers == kWarps;
  static constexpr int kBringers =
      kAllBring ? kThreads : kThreads - kMultipliers * kWarpSize;
  static constexpr int kWarpsOfRows = kRowWarps;
  static constexpr int kWarpsOfColumns = kMultipliers / kRowWarps;
  // Of a warp: tiles of 16 rows of weights and of 8 of the input.
  static constexpr int kColumnTiles = kColumns / (kWarpsOfColumns * 16);
  static constexpr int kRowTiles = kRows / (kRowWarps * 8);
  static_assert(kRowTiles % 2 == 0);
  // Chunks whose products are under way at once.
  static constexpr int kTogether = kTogetherChunks;
  // Where one warp of a scheduler multiplies, it has to reach ahead.
  static constexpr int kUnrolled = kAllBring ? 1 : kChunks / kTogether;

  // What a thread brings of a slab: four elements of the input of each
  // kInputsApart-th row, and eight of weights of each kWeightsApart-th.
  static constexpr int kInputsApart = kBringers / 16;
  static constexpr int kWeightsApart = kBringers / 8;
  static_assert(kInputsApart % 8 == 0 && kWeightsApart % 8 == 0);
  static constexpr int kQuads = kRows / kInputsApart;
  static constexpr int kPieces = kColumns / kWeightsApart;
};

using SmallTile = TileOf<kSmallTile, 4, 1, 2>;
using MiddleTile = TileOf<kMiddleTile, 4, 2, 1>;
using LargeTile = TileOf<kLargeTile, 8, 2, 1>;

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

/// A bringer's share of a step's inputs, on its way.
template <typename Tile>
using Quads = float4[Tile::kSlabs][Tile::kQuads];

template <typename Tile>
class InputBringer {
 public:
  /// Of `count` rows from row `first` on; those that there are not are zeros.
  __device__ InputBringer(const ManyArgs& args, int64_t first, int count,
                          int bringer, unsigned char* stages)
      : cols_(args.cols), count_(count - bringer / 16) {
    const int row = bringer / 16;
    const int quad = bringer % 16;
    from_ = args.x + (first + row) * int64_t{cols_} + 4 * quad;
    to_ = stages + row * kRowBytes + ((quad / 2 ^ row % 8) << 4) + quad % 2 * 8;
  }
  __device__ __forceinline__ void Load(int k, Quads<Tile>& quads) const {
#pragma unroll
    for (int slab = 0; slab < Tile::kSlabs; ++slab) {
      const int at = k + slab * kSlab;
#pragma unroll
      for (int i = 0; i < Tile::kQuads; ++i) {
        const int row = i * Tile::kInputsApart;
        quads[slab][i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (row < count_ && at < cols_) {
          quads[slab][i] = __ldcg(reinterpret_cast<const float4*>(
              from_ + int64_t{row} * cols_ + at));
        }
      }
    }
  }
  __device__ __forceinline__ void Store(const Quads<Tile>& quads,
                                        int stage) const {
    unsigned char* const to = to_ + stage * kInputStageBytes;
#pragma unroll
    for (int slab = 0; slab < Tile::kSlabs; ++slab) {
#pragma unroll
      for (int i = 0; i < Tile::kQuads; ++i) {
        const float4& quad = quads[slab][i];
        uint32_t words[2][kBF16Parts];
        CutPair(quad.x, quad.y, words[0]);
        CutPair(quad.z, quad.w, words[1]);
#pragma unroll
        for (int p = 0; p < kBF16Parts; ++p) {
          const int row =
              (slab * kBF16Parts + p) * Tile::kRows + i * Tile::kInputsApart;
          *reinterpret_cast<uint2*>(to + row * kRowBytes) =
              make_uint2(words[0][p], words[1][p]);
        }
      }
    }
  }

 private:
  int cols_;
  int count_;  // from this thread's first row on
  const float* from_;
  unsigned char* to_;
};

template <typename Tile>
class WeightBringer {
 public:
  __device__ WeightBringer(const ManyArgs& args, int first, int bringer,
                           const unsigned char* stages)
      : cols_(args.cols), count_(args.rows - first - bringer / 8) {
    const int row = bringer / 8;
    const int piece = bringer % 8;
    from_ = args.weight + 2 * ((first + row) * int64_t{cols_} + 8 * piece);
    to_ = SharedAddress(stages) +
          static_cast<uint32_t>(row * kRowBytes + ((piece ^ row % 8) << 4));
  }
  /// A group of copies; empty past the end of the rows.
  __device__ __forceinline__ void Start(int k, int stage) const {
    if (k < cols_) {
      const uint32_t to =
          to_ + static_cast<uint32_t>(stage * kWeightStageBytes);
#pragma unroll
      for (int slab = 0; slab < Tile::kSlabs; ++slab) {
        const int at = k + slab * kSlab;
#pragma unroll
        for (int i = 0; i < Tile::kPieces; ++i) {
          const int row = i * Tile::kWeightsApart;
          StartCopy16(to + static_cast<uint32_t>((slab * Tile::kColumns + row) *
                                                 kRowBytes),
                      from_ + 2 * (int64_t{row} * cols_ + at),
                      row < count_ && at < cols_);
        }
      }
    }
    EndCopyGroup();
  }

 private:
  int cols_;
  int count_;
  const char* from_;
  uint32_t to_;
};

}  // namespace signet::backend::gpu::many_rows
