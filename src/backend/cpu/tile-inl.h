// Small matrix products over f32 activations: rows of A, one value at a time,
// times rows of B, a vector of columns at a time. Each element of the result is
// one chain of fused multiply-adds in order of the depth, so it depends neither
// on the tile it is computed in nor on the width of the vectors. Re-included
// for each Highway target.

#if defined(SIGNET_BACKEND_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SIGNET_BACKEND_CPU_TILE_INL_H_
#undef SIGNET_BACKEND_CPU_TILE_INL_H_
#else
#define SIGNET_BACKEND_CPU_TILE_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "backend/cpu/simd_targets.h"
// Highway comes after its configuration.
#include "backend/cpu/math-inl.h"
#include "backend/cpu/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using TileTag = hn::CappedTag<float, 16>;
/// Rows of A that share a load of B.
inline constexpr size_t kTileRows = 4;
/// Vectors of columns that share a broadcast of A: as many as the registers
/// hold with kTileRows rows (32 registers with AVX-512, 16 without).
inline constexpr size_t kTileVectors = hn::MaxLanes(TileTag()) == 16 ? 4 : 2;

/// Columns and depth of the part of B that stays in the first-level cache
/// while all rows of A pass over it.
inline constexpr size_t kPanelColumns = kTileVectors * hn::MaxLanes(TileTag());
inline constexpr size_t kPanelDepth = 64;

/// The rows of a matrix, `stride` apart.
template <typename T>
struct StridedRows {
  const T* first;
  size_t stride;
  HWY_INLINE const T* operator()(size_t row) const {
    return first + row * stride;
  }
  HWY_INLINE StridedRows From(size_t row, size_t column) const {
    return {first + row * stride + column, stride};
  }
};

/// Rows anywhere, as the pages of a cache hold them.
template <typename T>
struct ScatteredRows {
  const T* const* rows;
  size_t column;
  HWY_INLINE const T* operator()(size_t row) const {
    return rows[row] + column;
  }
  HWY_INLINE ScatteredRows From(size_t row, size_t more) const {
    return {rows + row, column + more};
  }
};

namespace tile {

// One block of kVectors whole vectors of columns at `column`.
template <size_t kRows, size_t kVectors, class B>
HWY_INLINE void MulAddBlock(const float* const* a, size_t a_step, const B& b,
                            size_t depth, float* const* c, size_t column) {
  const TileTag d;
  constexpr size_t kLanes = hn::MaxLanes(TileTag());
  hn::Vec<TileTag> sum[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      sum[r][v] = hn::LoadU(d, c[r] + column + v * kLanes);
    }
  }
  for (size_t t = 0; t < depth; ++t) {
    const auto* from = b(t) + column;
    hn::Vec<TileTag> columns[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      columns[v] = LoadStored(d, from + v * kLanes);
    }
    for (size_t r = 0; r < kRows; ++r) {
      const auto value = hn::Set(d, a[r][t * a_step]);
      for (size_t v = 0; v < kVectors; ++v) {
        sum[r][v] = hn::MulAdd(value, columns[v], sum[r][v]);
      }
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[r][v], d, c[r] + column + v * kLanes);
    }
  }
}

// The last `n` columns, fewer than a vector.
template <size_t kRows, class B>
HWY_INLINE void MulAddTail(const float* const* a, size_t a_step, const B& b,
                           size_t depth, float* const* c, size_t column,
                           size_t n) {
  const TileTag d;
  const auto mask = hn::FirstN(d, n);
  hn::Vec<TileTag> sum[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    sum[r] = hn::MaskedLoad(mask, d, c[r] + column);
  }
  for (size_t t = 0; t < depth; ++t) {
    const auto columns = LoadStoredN(d, b(t) + column, n);
    for (size_t r = 0; r < kRows; ++r) {
      sum[r] = hn::MulAdd(hn::Set(d, a[r][t * a_step]), columns, sum[r]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    hn::BlendedStore(sum[r], mask, d, c[r] + column);
  }
}

template <size_t kRows, class B>
HWY_INLINE void MulAddFixedRows(const float* const* a, size_t a_step,
                                const B& b, size_t depth, float* const* c,
                                size_t columns) {
  constexpr size_t kLanes = hn::MaxLanes(TileTag());
  size_t j = 0;
  for (; j + kTileVectors * kLanes <= columns; j += kTileVectors * kLanes) {
    MulAddBlock<kRows, kTileVectors>(a, a_step, b, depth, c, j);
  }
  for (; j + kLanes <= columns; j += kLanes) {
    MulAddBlock<kRows, 1>(a, a_step, b, depth, c, j);
  }
  if (j < columns) {
    MulAddTail<kRows>(a, a_step, b, depth, c, j, columns - j);
  }
}

}  // namespace tile

/// c[r][j] += sum over t of a[r][t * a_step] * b(t)[j], t = 0 ... depth - 1 in
/// order, for the 1 <= num_rows <= kTileRows rows given and j < columns.
template <class B>
HWY_NOINLINE void MulAddRows(size_t num_rows, const float* const* a,
                             size_t a_step, const B& b, size_t depth,
                             float* const* c, size_t columns) {
  switch (num_rows) {
    case 1:
      return tile::MulAddFixedRows<1>(a, a_step, b, depth, c, columns);
    case 2:
      return tile::MulAddFixedRows<2>(a, a_step, b, depth, c, columns);
    case 3:
      return tile::MulAddFixedRows<3>(a, a_step, b, depth, c, columns);
    default:
      return tile::MulAddFixedRows<4>(a, a_step, b, depth, c, columns);
  }
}

/// The same for any number of rows: a_row(r) and c_row(r) point to row r of A
/// and of C.
template <class ARow, class B, class CRow>
HWY_INLINE void MulAddMatrix(size_t num_rows, const ARow& a_row, size_t a_step,
                             const B& b, size_t depth, const CRow& c_row,
                             size_t columns) {
  for (size_t column = 0; column < columns; column += kPanelColumns) {
    const size_t width = std::min(kPanelColumns, columns - column);
    for (size_t t = 0; t < depth; t += kPanelDepth) {
      const size_t count = std::min(kPanelDepth, depth - t);
      for (size_t first = 0; first < num_rows; first += kTileRows) {
        const size_t rows = std::min(kTileRows, num_rows - first);
        const float* a[kTileRows];
        float* c[kTileRows];
        for (size_t r = 0; r < rows; ++r) {
          a[r] = a_row(first + r) + t * a_step;
          c[r] = c_row(first + r) + column;
        }
        MulAddRows(rows, a, a_step, b.From(t, column), count, c, width);
      }
    }
  }
}

/// Row r at first + r * stride.
HWY_INLINE auto RowsAt(float* first, size_t stride) {
  return [first, stride](size_t row) { return first + row * stride; };
}
HWY_INLINE auto RowsAt(const float* first, size_t stride) {
  return [first, stride](size_t row) { return first + row * stride; };
}

namespace tile {

// Four rows by four columns, turned. Rows from `count` on are zeros.
template <class Rows>
HWY_INLINE void Transpose4(const Rows& rows, size_t row, size_t count,
                           size_t column, float* to, size_t to_stride) {
  const hn::CappedTag<float, 4> d;
  hn::Vec<decltype(d)> v[4];
  for (size_t r = 0; r < 4; ++r) {
    v[r] = r < count ? LoadStored(d, rows(row + r) + column) : hn::Zero(d);
  }
  const auto even0 = hn::InterleaveLower(d, v[0], v[2]);
  const auto odd0 = hn::InterleaveLower(d, v[1], v[3]);
  const auto even1 = hn::InterleaveUpper(d, v[0], v[2]);
  const auto odd1 = hn::InterleaveUpper(d, v[1], v[3]);
  float* out = to + column * to_stride + row;
  hn::StoreU(hn::InterleaveLower(d, even0, odd0), d, out);
  hn::StoreU(hn::InterleaveUpper(d, even0, odd0), d, out + to_stride);
  hn::StoreU(hn::InterleaveLower(d, even1, odd1), d, out + 2 * to_stride);
  hn::StoreU(hn::InterleaveUpper(d, even1, odd1), d, out + 3 * to_stride);
}

}  // namespace tile

/// to[column * to_stride + row] = rows(row)[column] for `num_rows` rows, and 0
/// for the rows up to the next multiple of 4; to_stride is at least that.
template <class Rows>
HWY_NOINLINE void TransposeRows(const Rows& rows, size_t num_rows,
                                size_t columns, float* to, size_t to_stride) {
  // Squares of a cache line on either side, since both strides are powers of
  // two that meet in few sets of the cache.
  constexpr size_t kSquare = 16;
  const size_t whole = columns / 4 * 4;
  for (size_t left = 0; left < whole; left += kSquare) {
    const size_t right = std::min(left + kSquare, whole);
    for (size_t top = 0; top < num_rows; top += kSquare) {
      const size_t bottom = std::min(top + kSquare, num_rows);
      for (size_t column = left; column < right; column += 4) {
        for (size_t row = top; row < bottom; row += 4) {
          tile::Transpose4(rows, row, std::min<size_t>(4, bottom - row), column,
                           to, to_stride);
        }
      }
    }
  }
  for (size_t column = whole; column < columns; ++column) {
    for (size_t row = 0; row < (num_rows + 3) / 4 * 4; ++row) {
      to[column * to_stride + row] =
          row < num_rows ? LoadStored1(rows(row) + column) : 0.0f;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#endif  // SIGNET_BACKEND_CPU_TILE_INL_H_
