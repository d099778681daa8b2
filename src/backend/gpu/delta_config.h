#pragma once
// Which kernels the ops of the DeltaNet mixer (conv, delta rule, gated norm)
// run on: pure functions of shape numbers, dtypes and the alignment of
// addresses, which are fixed when a program is bound (contract N3, N4).

#include <cstdint>
#include <initializer_list>

#include "backend/kernels.h"

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
  int64_t value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  bool aligned = false;
};

struct DeltaConfig {
  /// The kernel for long sequences of heads of 128 keys, else the one of any
  /// shape.
  bool streamed = false;
  int rows_per_warp = 0;  // state rows: 4, 16, 32 or 64 for each of 8 warps
  bool whole = false;     // no row or column is masked
  int64_t slices = 0;     // of kDeltaColumns columns of a head
  int64_t calls = 0;      // sequences side by side
};

/// Warps that share the state rows of a column.
inline constexpr int kDeltaWarps = 8;
/// Columns of a slice of the state.
inline constexpr int kDeltaColumns = 32;

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
