#pragma once
// Which kernels the ops of the DeltaNet mixer (conv, delta rule, gated norm)
// run on: pure functions of shape numbers, dtypes and the alignment of
// addresses, which are fixed when a program is bound (contract N3, N4).

#include <cstdint>
#include <initializer_list>

#include "backend/kernels.h"
#include "tensor/delta_chunk.h"

namespace signet::backend::gpu {

/// Whether every address allows accesses of 16 bytes.
inline bool Aligned16(std::initializer_list<const void*> addresses) {
  uintptr_t bits = 0;
  for (const void* address : addresses) {
    bits |= reinterpret_cast<uintptr_t>(address);
  }
  return bits % 16 == 0;
}

struct ConvDesc {
  RowForm form = RowForm::kSequenceEach;
  int64_t capacity = 0;
  int64_t channels = 0;
  int64_t taps = 0;
  bool aligned = false;
};

struct ConvConfig {
  int channels = 1;       // of a thread: 4 as vectors, or 1
  int64_t blocks = 0;     // over the channels
  int64_t row_tiles = 0;  // over the rows
};

/// Threads of a block of the convolution.
inline constexpr int kConvThreads = 128;
/// Rows of one sequence that a thread goes through; at least the most taps
/// less one, so that the first tile alone reads the state.
inline constexpr int kConvTileRows = 16;

ConvConfig ConfigOf(const ConvDesc& desc);

struct DeltaDesc {
  DeltaForm form = DeltaForm::kRecurrent;
  int64_t capacity = 0;
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  bool aligned = false;
  int64_t scratch_bytes = 0;  // of the kernels, not of the program
};

struct DeltaConfig {
  /// The kernels of chunks of kDeltaChunkTokens, for heads of 128 keys: how
  /// many chunks they work side by side. 0: token by token, any shape.
  int64_t chunks = 0;
  int64_t segments = 0;  // of so many chunks, one after the other
  // Token by token:
  int rows_per_warp = 0;  // state rows: 4, 16, 32 or 64 for each of 8 warps
  bool whole = false;     // no row or column is masked
  int64_t slices = 0;     // of kDeltaColumns columns of a head
  int64_t calls = 0;      // sequences side by side
};

/// Warps that share the state rows of a column.
inline constexpr int kDeltaWarps = 8;
/// Columns of a slice of the state.
inline constexpr int kDeltaColumns = 32;
/// The chunk of the chunked kernels, their key_dim, and the scratch of a chunk
/// for each key head (queries and keys) and each value head (two triangles of
/// ten tiles, three vectors).
inline constexpr int kDeltaChunkTokens = tensor::kDeltaChunk;
inline constexpr int kDeltaChunkKeys = 128;
inline constexpr int64_t kDeltaChunkKeyBytes =
    2 * 2 * 2 * kDeltaChunkTokens * kDeltaChunkKeys;
inline constexpr int64_t kDeltaChunkHeadBytes =
    2 * 10 * 2 * 2 * 16 * 16 + 3 * 4 * kDeltaChunkTokens;

DeltaConfig ConfigOf(const DeltaDesc& desc);

struct DeltaMixDesc {
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t taps = 0;
  bool aligned = false;
};

struct DeltaMixConfig {
  bool fused = false;  // else op by op
  int columns = 0;     // of a block
  int cluster = 0;     // blocks that share the channels of a key head
};

DeltaMixConfig ConfigOf(const DeltaMixDesc& desc);

}  // namespace signet::backend::gpu
