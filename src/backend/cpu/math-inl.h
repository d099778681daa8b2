// Vector mathematics of the CPU kernels: own polynomials over exact hardware
// operations, no libm and no reciprocal approximations, so that machines agree
// (contract N7). Every function works lane by lane, so a value does not depend
// on the vector it sits in; the scalar forms are the one-lane instances. Sums
// have one order on every instruction set. Re-included for each Highway target.

#if defined(SIGNET_BACKEND_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SIGNET_BACKEND_CPU_MATH_INL_H_
#undef SIGNET_BACKEND_CPU_MATH_INL_H_
#else
#define SIGNET_BACKEND_CPU_MATH_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "backend/cpu/simd_targets.h"
// Highway comes after its configuration.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// e^x of f32 lanes, within 1.5 units in the last place; 0 below -104,
/// infinity above 88.73, NaN for NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  // In this operand order the x86 minimum and maximum keep a NaN.
  x = hn::Max(hn::Set(d, -104.0f), hn::Min(hn::Set(d, 89.0f), x));
  const auto n = hn::NearestInt(hn::Mul(x, hn::Set(d, 1.44269504f)));
  const V nf = hn::ConvertTo(d, n);
  V r = hn::NegMulAdd(nf, hn::Set(d, 0.693145751953125f), x);
  r = hn::NegMulAdd(nf, hn::Set(d, 1.428606765330187e-6f), r);
  // e^r = 1 + r + r^2 p(r) over |r| <= ln(2) / 2.
  V p = hn::Set(d, 1.98527617e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.39304355e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.33336078e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.16664854e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.66666672e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  const V y = hn::Add(hn::Set(d, 1.0f), hn::MulAdd(hn::Mul(r, r), p, r));
  // 2^n in two halves, so that neither leaves the range of exponents.
  const auto half = hn::ShiftRight<1>(n);
  const auto bias = hn::Set(di, 127);
  const V scale0 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const V scale1 =
      hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(n, half), bias)));
  return hn::Mul(hn::Mul(y, scale0), scale1);
}

/// 1 / (1 + e^-x).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, Exp(d, hn::Neg(x))));
}

/// x / (1 + e^-x).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Silu(D d, V x) {
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), Exp(d, hn::Neg(x))));
}

/// log(1 + x) for x in [0, 1], by 2 atanh(x / (2 + x)).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Log1pUnit(D d, V x) {
  const V s = hn::Div(x, hn::Add(hn::Set(d, 2.0f), x));
  const V z = hn::Mul(s, s);
  V p = hn::Set(d, 2.0f / 17);
  p = hn::MulAdd(p, z, hn::Set(d, 2.0f / 15));
  p = hn::MulAdd(p, z, hn::Set(d, 2.0f / 13));
  p = hn::MulAdd(p, z, hn::Set(d, 2.0f / 11));
  p = hn::MulAdd(p, z, hn::Set(d, 2.0f / 9));
  p = hn::MulAdd(p, z, hn::Set(d, 2.0f / 7));
  p = hn::MulAdd(p, z, hn::Set(d, 2.0f / 5));
  p = hn::MulAdd(p, z, hn::Set(d, 2.0f / 3));
  p = hn::Mul(p, z);
  return hn::MulAdd(p, s, hn::Add(s, s));
}

/// log(1 + e^x); x itself for x > 20, where the rest is below its last place.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Softplus(D d, V x) {
  const V rest = Log1pUnit(d, Exp(d, hn::Neg(hn::Abs(x))));
  return hn::Add(hn::Max(hn::Zero(d), x), rest);
}

/// x^(-1/2) with the exact square root and division.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V InvSqrt(D d, V x) {
  return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x));
}

// The same for one value: bit-equal to any lane of the above.
using ScalarTag = hn::CappedTag<float, 1>;
HWY_INLINE float Exp1(float x) {
  const ScalarTag d;
  return hn::GetLane(Exp(d, hn::Set(d, x)));
}
HWY_INLINE float Sigmoid1(float x) {
  const ScalarTag d;
  return hn::GetLane(Sigmoid(d, hn::Set(d, x)));
}
HWY_INLINE float Silu1(float x) {
  const ScalarTag d;
  return hn::GetLane(Silu(d, hn::Set(d, x)));
}
HWY_INLINE float Softplus1(float x) {
  const ScalarTag d;
  return hn::GetLane(Softplus(d, hn::Set(d, x)));
}
HWY_INLINE float InvSqrt1(float x) {
  const ScalarTag d;
  return hn::GetLane(InvSqrt(d, hn::Set(d, x)));
}
/// a * b + c, rounded once.
HWY_INLINE float Fma1(float a, float b, float c) {
  const ScalarTag d;
  return hn::GetLane(hn::MulAdd(hn::Set(d, a), hn::Set(d, b), hn::Set(d, c)));
}

/// Sixteen running sums, the one order of every reduction over contiguous
/// values: value i belongs to lane i mod 16, a lane adds in order of i, and the
/// lanes are added by a tree of halves (8, 4, 2, 1). Instruction sets with
/// narrower vectors keep the same sixteen lanes in several of them.
class Sum16 {
 public:
  using D = hn::CappedTag<float, 16>;
  using V = hn::Vec<D>;
  static constexpr size_t kLanes = hn::MaxLanes(D());
  static constexpr size_t kParts = 16 / kLanes;

  HWY_INLINE Sum16() {
    for (size_t p = 0; p < kParts; ++p) parts_[p] = hn::Zero(D());
  }
  /// Lane part * kLanes + i gains a[i] * b[i], rounded once.
  HWY_INLINE void MulAdd(size_t part, V a, V b) {
    parts_[part] = hn::MulAdd(a, b, parts_[part]);
  }
  HWY_INLINE void Add(size_t part, V a) {
    parts_[part] = hn::Add(parts_[part], a);
  }
  HWY_INLINE float Total() const { return Reduce8(Fold(parts_)); }

 private:
  using D8 = hn::CappedTag<float, 8>;
  // A template, so that the branch not taken need not compile.
  template <class Part>
  static HWY_INLINE hn::Vec<D8> Fold(const Part* parts) {
    if constexpr (sizeof(Part) == 16 * sizeof(float)) {
      return hn::Add(hn::LowerHalf(D8(), parts[0]),
                     hn::UpperHalf(D8(), parts[0]));
    } else {
      static_assert(sizeof(Part) == 8 * sizeof(float),
                    "the baseline has vectors of 8 lanes");
      return hn::Add(parts[0], parts[1]);
    }
  }
  static HWY_INLINE float Reduce8(hn::Vec<D8> v) {
    const hn::CappedTag<float, 4> d4;
    auto w = hn::Add(hn::LowerHalf(d4, v), hn::UpperHalf(d4, v));
    w = hn::Add(w, hn::Shuffle1032(w));
    w = hn::Add(w, hn::Shuffle2301(w));
    return hn::GetLane(w);
  }

  V parts_[kParts];
};

/// Calls body(offset, part, load) over x[0, n) in steps of one vector; `load`
/// reads a float pointer at that offset, with zeros past n.
template <class Body>
HWY_INLINE void ForLanes16(size_t n, const Body& body) {
  const Sum16::D d;
  constexpr size_t kLanes = Sum16::kLanes;
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (size_t p = 0; p < Sum16::kParts; ++p) {
      const size_t at = i + p * kLanes;
      body(at, p, [&](const float* x) { return hn::LoadU(d, x + at); });
    }
  }
  for (size_t p = 0; i < n; i += kLanes, ++p) {
    const auto mask = hn::FirstN(d, n - i);
    body(i, p, [&](const float* x) { return hn::MaskedLoad(mask, d, x + i); });
  }
}

/// The sum of x[i] * y[i].
HWY_INLINE float Dot(const float* HWY_RESTRICT x, const float* HWY_RESTRICT y,
                     size_t n) {
  Sum16 sum;
  ForLanes16(n, [&](size_t, size_t part, const auto& load) {
    sum.MulAdd(part, load(x), load(y));
  });
  return sum.Total();
}

/// The sum of x[i]^2.
HWY_INLINE float SumSquares(const float* HWY_RESTRICT x, size_t n) {
  Sum16 sum;
  ForLanes16(n, [&](size_t, size_t part, const auto& load) {
    const auto v = load(x);
    sum.MulAdd(part, v, v);
  });
  return sum.Total();
}

/// The sum of x[i].
HWY_INLINE float Sum(const float* HWY_RESTRICT x, size_t n) {
  Sum16 sum;
  ForLanes16(n, [&](size_t, size_t part, const auto& load) {
    sum.Add(part, load(x));
  });
  return sum.Total();
}

/// Calls body(offset, load, store) over [0, n) in whole vectors, then one
/// partial one; `load(p)` and `store(v, p)` work at p + offset.
template <class Body>
HWY_INLINE void ForVectors(size_t n, const Body& body) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    body(
        i, [&](const float* p) { return hn::LoadU(d, p + i); },
        [&](auto v, float* p) { hn::StoreU(v, d, p + i); });
  }
  if (i < n) {
    const auto mask = hn::FirstN(d, n - i);
    body(
        i, [&](const float* p) { return hn::MaskedLoad(mask, d, p + i); },
        [&](auto v, float* p) { hn::BlendedStore(v, mask, d, p + i); });
  }
}

/// Sine and cosine of an f32 angle, in double precision: within 1e-9 for
/// |angle| up to 2^20.
struct SinCosPair {
  float sin;
  float cos;
};
HWY_INLINE SinCosPair SinCos(float angle) {
  const double x = angle;
  // The nearest multiple of pi/2. The first part of pi/2 has 33 bits, so its
  // product with any count below 2^20 is exact.
  const double turns = x * 0.63661977236758134308;
  const int64_t n = static_cast<int64_t>(turns < 0 ? turns - 0.5 : turns + 0.5);
  const double nd = static_cast<double>(n);
  const double r =
      (x - nd * 1.57079632673412561417) - nd * 6.07710050650619224932e-11;
  const double z = r * r;
  // Taylor series on |r| <= pi/4; the first term left out is below 1e-13.
  const double s =
      r +
      r * z *
          (-1.0 / 6 +
           z * (1.0 / 120 + z * (-1.0 / 5040 +
                                 z * (1.0 / 362880 + z * (-1.0 / 39916800 +
                                                          z / 6227020800.0)))));
  const double c =
      1 - z * (0.5 - z * (1.0 / 24 -
                          z * (1.0 / 720 -
                               z * (1.0 / 40320 -
                                    z * (1.0 / 3628800 - z / 479001600.0)))));
  const double sin = (n & 1) != 0 ? c : s;
  const double cos = (n & 1) != 0 ? s : c;
  return {static_cast<float>((n & 2) != 0 ? -sin : sin),
          static_cast<float>(((n + 1) & 2) != 0 ? -cos : cos)};
}

}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#endif  // SIGNET_BACKEND_CPU_MATH_INL_H_
