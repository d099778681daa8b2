#pragma once
// Products of f32 matrices on tensor cores to nearly f32. An operand x is
// brought into the range of f16 by a power of two and split in two f16, high +
// low, exact to 22 bits; a product is high high + (high low + low high), each
// sum in f32, so that what is lost is of the order of 2^-22. Device code only.

#include <cuda_fp16.h>

#include <cstdint>

#include "backend/gpu/sm80_mma.cuh"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// Where unit `unit` (16 bytes) of row `row` lies in a matrix of f16 of kUnits
/// units a row, in bytes. Eight rows of one unit, from a multiple of eight on,
/// lie in different banks.
template <int kUnits>
__host__ __device__ constexpr int UnitOffset(int row, int unit) {
  constexpr int kSpan = kUnits < 8 ? kUnits : 8;
  static_assert(kUnits % kSpan == 0 && 8 % kSpan == 0);
  const int turn =
      static_cast<int>(static_cast<unsigned>(row) % 8) / (8 / kSpan);
  return (row * kUnits + (unit ^ turn)) * 16;
}

/// A matrix of kRows rows, split, in shared memory or as it is to lie there.
template <int kRows, int kUnits>
struct SplitMatrix {
  static constexpr int kBytes = kRows * kUnits * 16;
  alignas(16) unsigned char high[kBytes];
  alignas(16) unsigned char low[kBytes];
};

/// Two f16 each: the values, and what their rounding left.
struct SplitPair {
  uint32_t high;
  uint32_t low;
};
__device__ inline uint32_t BitsOf(__half2 x) {
  return *reinterpret_cast<const uint32_t*>(&x);
}
__device__ inline SplitPair SplitOf(float x, float y) {
  const __half2 high = __floats2half2_rn(x, y);
  const float2 back = __half22float2(high);
  const __half2 low =
      __floats2half2_rn(__fadd_rn(x, -back.x), __fadd_rn(y, -back.y));
  return {BitsOf(high), BitsOf(low)};
}
/// Elements 2 * pair, 2 * pair + 1 of unit `unit` of row `row`.
template <int kRows, int kUnits>
__device__ inline void Store(SplitMatrix<kRows, kUnits>& to, int row, int unit,
                             int pair, SplitPair x) {
  const int at = UnitOffset<kUnits>(row, unit) + 4 * pair;
  *reinterpret_cast<uint32_t*>(to.high + at) = x.high;
  *reinterpret_cast<uint32_t*>(to.low + at) = x.low;
}

/// A tile of an operand, split.
struct SplitTile {
  uint32_t high[4];
  uint32_t low[4];

  template <int kRows, int kUnits>
  __device__ void Load(const SplitMatrix<kRows, kUnits>& from, int row,
                       int unit) {
    const int at = UnitOffset<kUnits>(row, unit);
    LoadFragments(high, SharedAddress(from.high + at));
    LoadFragments(low, SharedAddress(from.low + at));
  }
  template <int kRows, int kUnits>
  __device__ void LoadTurned(const SplitMatrix<kRows, kUnits>& from, int row,
                             int unit) {
    const int at = UnitOffset<kUnits>(row, unit);
    LoadFragmentsTurned(high, SharedAddress(from.high + at));
    LoadFragmentsTurned(low, SharedAddress(from.low + at));
  }
};
/// The tile [16, 16] at row `outer`, column `inner` of a stored matrix as a
/// left or right operand. Left: of m = outer, k = inner; right: of n = outer,
/// k = inner. Turned, left: of k = outer, m = inner; right: of k = outer,
/// n = inner.
template <int kRows, int kUnits>
__device__ inline SplitTile LeftTile(const SplitMatrix<kRows, kUnits>& from,
                                     int outer, int inner, int lane) {
  SplitTile tile;
  tile.Load(from, outer + lane % 16, inner / 8 + lane / 16);
  return tile;
}
template <int kRows, int kUnits>
__device__ inline SplitTile RightTile(const SplitMatrix<kRows, kUnits>& from,
                                      int outer, int inner, int lane) {
  SplitTile tile;
  tile.Load(from, outer + lane / 16 * 8 + lane % 8, inner / 8 + lane / 8 % 2);
  return tile;
}
template <int kRows, int kUnits>
__device__ inline SplitTile LeftTurned(const SplitMatrix<kRows, kUnits>& from,
                                       int outer, int inner, int lane) {
  SplitTile tile;
  tile.LoadTurned(from, outer + lane / 16 * 8 + lane % 8,
                  inner / 8 + lane / 8 % 2);
  return tile;
}
template <int kRows, int kUnits>
__device__ inline SplitTile RightTurned(const SplitMatrix<kRows, kUnits>& from,
                                        int outer, int inner, int lane) {
  SplitTile tile;
  tile.LoadTurned(from, outer + lane % 16, inner / 8 + lane / 16);
  return tile;
}

/// A product [16, 8 kTiles] in the making; element [t][e] of a thread is
/// (g + e / 2 * 8, 8 t + 2 q + e % 2). Tensor cores cut what they add to the
/// bits of the largest addend, which is worth a part in 10^6 in a long sum of
/// one sign: they sum 16 products, and what is left of roundings; the rest is
/// added and rounded outside.
template <int kTiles>
struct SplitSum {
  float high[kTiles][4] = {};
  float low[kTiles][4] = {};

  /// Adds left [16, 16] right [16, 16] at columns 8 tile ... 8 tile + 15.
  __device__ void Add(int tile, const SplitTile& left, const SplitTile& right) {
    float products[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t* b = right.high + 2 * i;
      MultiplyHalfTile(low[tile + i], left.low, b[0], b[1]);
      MultiplyHalfTileAlone(products[i], left.high, b[0], b[1]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t* b = right.low + 2 * i;
      MultiplyHalfTile(low[tile + i], left.high, b[0], b[1]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        high[tile + i][e] = __fadd_rn(high[tile + i][e], products[i][e]);
      }
    }
  }
  __device__ float Get(int tile, int element) const {
    return __fadd_rn(high[tile][element], low[tile][element]);
  }
};

/// A power of two, and its inverse.
struct Scale {
  float up;
  float down;
};
/// Brings values of up to `most` (bits of an f32) below 2^15.
__device__ inline Scale ScaleOf(uint32_t most) {
  // A value of exponent field e is below 2^(e - 126).
  const int field =
      min(127 + 15 + 126 - static_cast<int>(most >> 23), 127 + 120);
  return {__uint_as_float(static_cast<uint32_t>(field) << 23),
          __uint_as_float(static_cast<uint32_t>(254 - field) << 23)};
}
/// The greater of `most` and |x|, as bits.
__device__ inline uint32_t Most(uint32_t most, float x) {
  return max(most, __float_as_uint(fabsf(x)));
}
template <int kCount>
__device__ inline uint32_t MostOf(const uint32_t (&list)[kCount]) {
  uint32_t most = list[0];
#pragma unroll
  for (int i = 1; i < kCount; ++i) most = max(most, list[i]);
  return most;
}

/// [16, 8 kCount] of f32 in the registers of a warp, as a SplitSum's.
template <int kCount>
struct Columns {
  float at[kCount][4];

  __device__ uint32_t MostOfWarp() const {
    uint32_t most = 0;
#pragma unroll
    for (int t = 0; t < kCount; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) most = Most(most, at[t][e]);
    }
    return __reduce_max_sync(~0u, most);
  }
  /// To rows from `row` on and units from `unit` on, its rows g and g + 8 times
  /// a factor each.
  template <int kRows, int kUnits>
  __device__ void Split(SplitMatrix<kRows, kUnits>& to, int row, int unit,
                        int lane, float first, float second) const {
    const int g = row + lane / 4;
#pragma unroll
    for (int t = 0; t < kCount; ++t) {
      Store(to, g, unit + t, lane % 4,
            SplitOf(__fmul_rn(at[t][0], first), __fmul_rn(at[t][1], first)));
      Store(to, g + 8, unit + t, lane % 4,
            SplitOf(__fmul_rn(at[t][2], second), __fmul_rn(at[t][3], second)));
    }
  }
};

}  // namespace signet::backend::gpu
