#include "backend/cpu/product.h"

#include <algorithm>

#include "backend/cpu/simd_targets.h"
#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/product.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once a target.
#include "backend/cpu/product_tile-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {
namespace {

// The sums of a tile fill the vector registers: 32 of AVX-512, or 16 of AVX2
// with two a sum. More weights a tile means less input from L2 a product.
constexpr int kTileInputs = kParts == 1 ? 4 : 1;
constexpr int kStoredWeights = 4;
constexpr int kPanelWeights = 6;
// A panel, 12 KiB, and the inputs that stream past it share L1.
constexpr int64_t kPanelSteps = 32;
// Tiles that between them prefetch the whole next panel, each in passing. With
// fewer, weights are converted in registers, tile by tile.
constexpr int kAheadTiles = kPanelWeights / kRowsAhead;
constexpr int64_t kPanelMinInputs = (kAheadTiles - 1) * kTileInputs + 1;
// How far ahead a single row reads its weights: a microsecond of memory.
constexpr int64_t kAheadBytes = 16384;

/// Calls run.On<k>(m) for tiles of k inputs from m.
template <typename Run>
HWY_INLINE void ForInputTiles(int64_t num_inputs, const Run& run) {
  int64_t m = 0;
  for (; m + kTileInputs <= num_inputs; m += kTileInputs) {
    run.template On<kTileInputs>(m);
  }
  if constexpr (kTileInputs > 1) {
    switch (num_inputs - m) {
      case 3:
        return run.template On<3>(m);
      case 2:
        return run.template On<2>(m);
      case 1:
        return run.template On<1>(m);
      default:
        return;
    }
  }
}

/// Weight rows from n; the last row of the block stands in for rows past it.
template <int kWeights, typename T>
HWY_INLINE StoredRows<T, kWeights> RowsFrom(const ProductBlock& block,
                                            int64_t n, int64_t offset) {
  const T* data = static_cast<const T*>(block.weights);
  StoredRows<T, kWeights> rows = {};
  for (int i = 0; i < kWeights; ++i) {
    const int64_t row = std::min(n + i, block.num_weights - 1);
    rows.row[i] = data + row * block.cols + offset;
  }
  return rows;
}

template <typename T>
struct StoredRun {
  const ProductBlock& block;
  StoredRows<T, kStoredWeights> rows;
  int64_t n;
  template <int kInputs>
  HWY_NOINLINE void On(int64_t m) const {
    Tile<kInputs, kStoredWeights> tile;
    tile.Clear();
    tile.Add(block.inputs + m, 0, rows, Extent(block.cols));
    tile.Write(block.outputs + m, n,
               std::min<int64_t>(kStoredWeights, block.num_weights - n));
  }
};

/// Few inputs: bound by memory, so weights are read once and in order.
template <typename T>
void MultiplyStored(const ProductBlock& block) {
  const int64_t tile_bytes =
      kStoredWeights * block.cols * static_cast<int64_t>(sizeof(T));
  const int64_t tiles_ahead = (kAheadBytes + tile_bytes - 1) / tile_bytes;
  for (int64_t n = 0; n < block.num_weights; n += kStoredWeights) {
    StoredRun<T> run = {block, RowsFrom<kStoredWeights, T>(block, n, 0), n};
    run.rows.ahead_bytes = tiles_ahead * tile_bytes;
    ForInputTiles(block.num_inputs, run);
  }
}

template <typename T>
HWY_INLINE void FillPanel(const StoredRows<T, kPanelWeights>& rows,
                          Extent extent, float* panel) {
  for (int64_t step = 0; step < extent.num_steps; ++step) {
    for (int n = 0; n < kPanelWeights; ++n) {
      StoreLanes(rows.Load(n, step),
                 panel + (step * kPanelWeights + n) * kDotLanes);
    }
  }
  if (extent.tail == 0) return;
  for (int n = 0; n < kPanelWeights; ++n) {
    StoreLanes(rows.LoadTail(n, extent.num_steps, extent.tail),
               panel + (extent.num_steps * kPanelWeights + n) * kDotLanes);
  }
}

/// All inputs meet one panel. Between panels of the same weight rows the lanes
/// rest in memory, which changes no bit.
template <typename T>
struct PanelRun {
  const ProductBlock& block;
  const float* panel;
  StoredRows<T, kPanelWeights> next;
  int64_t n;
  int64_t offset;  // of the panel in the reduction
  int64_t cols;
  float* lanes;

  template <int kInputs>
  HWY_NOINLINE void On(int64_t m) const {
    Panel<kPanelWeights> weights = {
        panel, {}, static_cast<int64_t>(kDotLanes * sizeof(T))};
    for (int i = 0; i < kRowsAhead; ++i) {
      const int64_t row = m / kTileInputs * kRowsAhead + i;
      // Past the first tiles there is nothing to ask for but what is here.
      weights.ahead[i] =
          row < kPanelWeights ? static_cast<const void*>(next.row[row]) : panel;
    }
    Tile<kInputs, kPanelWeights> tile;
    float* const rest = lanes + m * kPanelWeights * kDotLanes;
    if (offset == 0) {
      tile.Clear();
    } else {
      tile.Resume(rest);
    }
    tile.Add(block.inputs + m, offset, weights, Extent(cols));
    if (offset + cols < block.cols) {
      tile.Leave(rest);
    } else {
      tile.Write(block.outputs + m, n,
                 std::min<int64_t>(kPanelWeights, block.num_weights - n));
    }
  }
};

/// Many inputs: a panel of weights is converted once and met by all of them.
template <typename T>
void MultiplyPanels(const ProductBlock& block) {
  HWY_ALIGN float panel[kPanelSteps * kPanelWeights * kDotLanes];
  HWY_ALIGN float lanes[kMaxBlockInputs * kPanelWeights * kDotLanes];
  constexpr int64_t kPanelCols = kPanelSteps * kDotLanes;
  for (int64_t n = 0; n < block.num_weights; n += kPanelWeights) {
    for (int64_t offset = 0; offset < block.cols; offset += kPanelCols) {
      const int64_t cols = std::min(kPanelCols, block.cols - offset);
      FillPanel(RowsFrom<kPanelWeights, T>(block, n, offset), Extent(cols),
                panel);
      const bool same_rows = offset + cols < block.cols;
      const auto next =
          same_rows ? RowsFrom<kPanelWeights, T>(block, n, offset + cols)
                    : RowsFrom<kPanelWeights, T>(block, n + kPanelWeights, 0);
      ForInputTiles(block.num_inputs,
                    PanelRun<T>{block, panel, next, n, offset, cols, lanes});
    }
  }
}

template <typename T>
void Multiply(const ProductBlock& block) {
  if (block.num_inputs < kPanelMinInputs) {
    MultiplyStored<T>(block);
  } else {
    MultiplyPanels<T>(block);
  }
}

}  // namespace

void MultiplyBlockOn(const ProductBlock& block) {
  switch (block.dtype) {
    case tensor::DType::kF32:
      return Multiply<float>(block);
    case tensor::DType::kBF16:
      return Multiply<hwy::bfloat16_t>(block);
    case tensor::DType::kF16:
      return Multiply<hwy::float16_t>(block);
    case tensor::DType::kI32:
      break;
  }
  SIGNET_CHECK(block.dtype != tensor::DType::kI32);
}

}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace signet::backend::cpu {

HWY_EXPORT(MultiplyBlockOn);

void MultiplyBlock(const ProductBlock& block) {
  SIGNET_CHECK(block.num_inputs <= kMaxBlockInputs && block.cols > 0);
  HWY_DYNAMIC_DISPATCH(MultiplyBlockOn)(block);
}

}  // namespace signet::backend::cpu
#endif
