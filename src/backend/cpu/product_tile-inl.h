// Tiles of dot products in registers: a few input rows times a few weight rows,
// each sum sixteen lanes. The size of a tile changes no bit, since every sum
// has its own lanes. Included once a target.

#if defined(SIGNET_BACKEND_CPU_PRODUCT_TILE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef SIGNET_BACKEND_CPU_PRODUCT_TILE_INL_H_
#undef SIGNET_BACKEND_CPU_PRODUCT_TILE_INL_H_
#else
#define SIGNET_BACKEND_CPU_PRODUCT_TILE_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "backend/cpu/lanes16-inl.h"
#include "backend/cpu/product.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {

/// A stretch of the reduction: full steps of 16 elements, then `tail` < 16.
struct Extent {
  int64_t num_steps;
  size_t tail;
  explicit HWY_INLINE Extent(int64_t cols)
      : num_steps(cols / kDotLanes),
        tail(static_cast<size_t>(cols % kDotLanes)) {}
};

/// Asks for the cache line of `address + bytes` in L2; it may lie past the end
/// of anything, so it is a number, not a pointer.
HWY_INLINE void PrefetchLine(const void* address, int64_t bytes) {
  constexpr int kRead = 0;
  constexpr int kIntoL2 = 2;
  __builtin_prefetch(
      reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(address) +
                                    static_cast<uintptr_t>(bytes)),
      kRead, kIntoL2);
}

/// Weight rows as stored, converted in registers.
template <typename T, int kWeights>
struct StoredRows {
  const T* row[kWeights];
  int64_t ahead_bytes;  // from a row to the one of a later tile

  HWY_INLINE Lanes Load(int n, int64_t step) const {
    return LoadLanes(row[n] + step * kDotLanes);
  }
  HWY_INLINE void Prefetch(int64_t step) const {
#pragma GCC unroll 8
    for (int n = 0; n < kWeights; ++n) {
      PrefetchLine(row[n] + step * kDotLanes, ahead_bytes);
    }
  }
  HWY_INLINE Lanes LoadTail(int n, int64_t step, size_t count) const {
    return HWY_NAMESPACE::LoadTail(row[n] + step * kDotLanes, count);
  }
};

/// Rows of the next panel that a tile prefetches while it works on this one.
inline constexpr int kRowsAhead = 2;

/// Weight rows converted beforehand: [step][row][16], zeros past the end.
template <int kWeights>
struct Panel {
  const float* data;
  const void* ahead[kRowsAhead];  // rows of a later panel, as stored
  int64_t step_bytes;             // of those, a step
  HWY_INLINE Lanes Load(int n, int64_t step) const {
    return LoadLanes(data + (step * kWeights + n) * kDotLanes);
  }
  HWY_INLINE void Prefetch(int64_t step) const {
    for (const void* row : ahead) PrefetchLine(row, step * step_bytes);
  }
  HWY_INLINE Lanes LoadTail(int n, int64_t step, size_t) const {
    return Load(n, step);
  }
};

template <int kInputs, int kWeights>
struct Tile {
  Lanes sum[kInputs][kWeights];

  HWY_INLINE void Clear() {
#pragma GCC unroll 8
    for (int m = 0; m < kInputs; ++m) {
#pragma GCC unroll 8
      for (int n = 0; n < kWeights; ++n) sum[m][n] = ZeroLanes();
    }
  }

  /// From lanes left by Leave.
  HWY_INLINE void Resume(const float* lanes) {
#pragma GCC unroll 8
    for (int m = 0; m < kInputs; ++m) {
#pragma GCC unroll 8
      for (int n = 0; n < kWeights; ++n) {
        sum[m][n] = LoadLanes(lanes + (m * kWeights + n) * kDotLanes);
      }
    }
  }

  HWY_INLINE void Leave(float* lanes) const {
#pragma GCC unroll 8
    for (int m = 0; m < kInputs; ++m) {
#pragma GCC unroll 8
      for (int n = 0; n < kWeights; ++n) {
        StoreLanes(sum[m][n], lanes + (m * kWeights + n) * kDotLanes);
      }
    }
  }

  /// Adds a stretch of every product. `offset` is where it begins in the
  /// inputs; `weights` begin there.
  template <typename Weights>
  HWY_INLINE void Add(const float* const* inputs, int64_t offset,
                      const Weights& weights, Extent extent) {
    const float* input[kInputs];
    for (int m = 0; m < kInputs; ++m) input[m] = inputs[m] + offset;
    for (int64_t step = 0; step < extent.num_steps; ++step) {
      weights.Prefetch(step);
      Lanes w[kWeights];
#pragma GCC unroll 8
      for (int n = 0; n < kWeights; ++n) w[n] = weights.Load(n, step);
#pragma GCC unroll 8
      for (int m = 0; m < kInputs; ++m) {
        const Lanes x = LoadLanes(input[m] + step * kDotLanes);
#pragma GCC unroll 8
        for (int n = 0; n < kWeights; ++n) FusedAdd(x, w[n], sum[m][n]);
      }
    }
    if (extent.tail == 0) return;
    const int64_t step = extent.num_steps;
#pragma GCC unroll 8
    for (int m = 0; m < kInputs; ++m) {
      const Lanes x = LoadTail(input[m] + step * kDotLanes, extent.tail);
#pragma GCC unroll 8
      for (int n = 0; n < kWeights; ++n) {
        FusedAdd(x, weights.LoadTail(n, step, extent.tail), sum[m][n]);
      }
    }
  }

  /// outputs[m][n + i] = the sum of lanes, i < count <= kWeights.
  HWY_INLINE void Write(float* const* outputs, int64_t n, int64_t count) const {
    constexpr int kQuads = (kWeights + 3) / 4;
    HWY_ALIGN float sums[kInputs][kQuads * 4];
#pragma GCC unroll 8
    for (int m = 0; m < kInputs; ++m) {
#pragma GCC unroll 2
      for (int quad = 0; quad < kQuads; ++quad) {
        // The last row stands in for rows that the tile lacks.
        constexpr int kLast = kWeights - 1;
        const int i = quad * 4;
        const auto four = SumLanes(sum[m][i], sum[m][HWY_MIN(i + 1, kLast)],
                                   sum[m][HWY_MIN(i + 2, kLast)],
                                   sum[m][HWY_MIN(i + 3, kLast)]);
        hn::Store(four, QuadTag(), sums[m] + i);
      }
      // The size is a constant in the usual case.
      if (count == kWeights) {
        std::memcpy(outputs[m] + n, sums[m], kWeights * sizeof(float));
      } else {
        std::memcpy(outputs[m] + n, sums[m],
                    static_cast<size_t>(count) * sizeof(float));
      }
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
