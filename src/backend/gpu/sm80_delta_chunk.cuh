#pragma once
// What the two kernels of the chunked delta rule share: a chunk as the first
// leaves it for the second, and their launches. Device code only.

#include <cstdint>

#include "backend/gpu/delta.cuh"
#include "backend/gpu/delta_config.h"
#include "backend/gpu/sm80_split_product.cuh"

namespace signet::backend::gpu {

inline constexpr int kChunk = kDeltaChunkTokens;
inline constexpr int kKeyDim = kDeltaChunkKeys;
inline constexpr int kKeyUnits = kKeyDim / 8;
inline constexpr int kColumnUnits = kDeltaColumns / 8;

/// Tokens of a tile, tiles of a chunk.
inline constexpr int kTile = 16;
inline constexpr int kTiles = kChunk / kTile;
inline constexpr int kTileUnits = kTile / 8;
/// Tile [i, j], j <= i, of a triangle: its first row.
__host__ __device__ constexpr int TriangleRow(int i, int j) {
  return (i * (i + 1) / 2 + j) * kTile;
}

/// The normalised keys and queries of a chunk, times kKeyScale: [C, dk].
struct ChunkKeys {
  SplitMatrix<kChunk, kKeyUnits> k;
  SplitMatrix<kChunk, kKeyUnits> q;
};
/// The tiles of a lower triangle [C, C], row by row.
using Triangle = SplitMatrix<TriangleRow(kTiles, 0), kTileUnits>;
/// Of a chunk and a value head, with L, A and G of delta_chunked.cpp:
/// (I + L)^-1 and A, times kTriangleScale; exp(G), exp(G_C - G) and beta.
/// Tokens past the live ones: keys and queries of zeros, decay 1, beta 0.
struct ChunkHead {
  Triangle inverse;
  Triangle attention;
  alignas(16) float decay[kChunk];
  float rest[kChunk];
  float beta[kChunk];
};
static_assert(sizeof(ChunkKeys) == kDeltaChunkKeyBytes);
static_assert(sizeof(ChunkHead) == kDeltaChunkHeadBytes);

/// Keys and queries are of length 1 at most, so are the triangles' elements.
inline constexpr float kKeyScale = 64;
inline constexpr float kTriangleScale = 1024;

/// Chunks [first, first + count) of a call, worked at once. The first kernel
/// writes keys and heads, the second reads them.
struct ChunkSegment {
  int64_t first = 0;
  int64_t count = 0;
  ChunkKeys* keys = nullptr;   // [count, key_heads]
  ChunkHead* heads = nullptr;  // [count, value_heads]
};

/// For a kernel with dynamic shared memory. All of a multiprocessor's, so that
/// it is not divided anew between the launches, which would keep them apart.
template <typename Kernel>
Status AllowSharedMemory(Kernel* kernel, int bytes) {
  const Status status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != kOk) return status;
  return cudaFuncSetAttribute(kernel,
                              cudaFuncAttributePreferredSharedMemoryCarveout,
                              cudaSharedmemCarveoutMaxShared);
}

/// sm80_delta_triangles.cu: all of a chunk that does not need the state.
Status MakeTriangles(Stream stream, const DeltaRuleArgs& args,
                     const ChunkSegment& segment);
/// sm90_delta_walk.cu: takes the chunks into the state and writes the output.
Status WalkChunks(Stream stream, const DeltaRuleArgs& args,
                  const ChunkSegment& segment, int64_t slices);

}  // namespace signet::backend::gpu
