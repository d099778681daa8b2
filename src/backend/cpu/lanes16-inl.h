// The sixteen lanes of a dot product in registers: one AVX-512 vector or two
// AVX2 vectors, with the same arithmetic. Included once a target.

#if defined(SIGNET_BACKEND_CPU_LANES16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SIGNET_BACKEND_CPU_LANES16_INL_H_
#undef SIGNET_BACKEND_CPU_LANES16_INL_H_
#else
#define SIGNET_BACKEND_CPU_LANES16_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using LaneTag = hn::CappedTag<float, 16>;
using LaneVec = hn::Vec<LaneTag>;
inline constexpr size_t kPartLanes = HWY_MAX_BYTES >= 64 ? 16 : 8;
inline constexpr size_t kParts = 16 / kPartLanes;

struct Lanes {
  LaneVec part[kParts];
};

HWY_INLINE Lanes ZeroLanes() {
  Lanes out;
  for (size_t p = 0; p < kParts; ++p) out.part[p] = hn::Zero(LaneTag());
  return out;
}

HWY_INLINE Lanes LoadLanes(const float* from) {
  Lanes out;
  for (size_t p = 0; p < kParts; ++p) {
    out.part[p] = hn::LoadU(LaneTag(), from + p * kPartLanes);
  }
  return out;
}

HWY_INLINE Lanes LoadLanes(const hwy::bfloat16_t* from) {
  const hn::Rebind<uint16_t, LaneTag> d16;
  const hn::Rebind<uint32_t, LaneTag> d32;
  const auto* bits = reinterpret_cast<const uint16_t*>(from);
  Lanes out;
  for (size_t p = 0; p < kParts; ++p) {
    const auto wide = hn::PromoteTo(d32, hn::LoadU(d16, bits + p * kPartLanes));
    out.part[p] = hn::BitCast(LaneTag(), hn::ShiftLeft<16>(wide));
  }
  return out;
}

HWY_INLINE Lanes LoadLanes(const hwy::float16_t* from) {
  const hn::Rebind<hwy::float16_t, LaneTag> d16;
  Lanes out;
  for (size_t p = 0; p < kParts; ++p) {
    out.part[p] =
        hn::PromoteTo(LaneTag(), hn::LoadU(d16, from + p * kPartLanes));
  }
  return out;
}

/// The first `count` < 16 elements, then zeros; reads nothing past them.
template <typename T>
HWY_INLINE Lanes LoadTail(const T* from, size_t count) {
  HWY_ALIGN T padded[16];
  std::memset(padded, 0, sizeof(padded));
  std::memcpy(padded, from, count * sizeof(T));
  return LoadLanes(padded);
}

HWY_INLINE void StoreLanes(const Lanes& lanes, float* to) {
  for (size_t p = 0; p < kParts; ++p) {
    hn::StoreU(lanes.part[p], LaneTag(), to + p * kPartLanes);
  }
}

/// sum <- x * w + sum, rounded once.
HWY_INLINE void FusedAdd(const Lanes& x, const Lanes& w, Lanes& sum) {
  for (size_t p = 0; p < kParts; ++p) {
    sum.part[p] = hn::MulAdd(x.part[p], w.part[p], sum.part[p]);
  }
}

using QuadTag = hn::CappedTag<float, 4>;
using OctTag = hn::CappedTag<float, 8>;

/// The sums of a, b, c and d over their lanes: lane i is added to lane i + 8,
/// then i + 4, i + 2, i + 1.
HWY_INLINE hn::Vec<QuadTag> SumLanes(const Lanes& a, const Lanes& b,
                                     const Lanes& c, const Lanes& d) {
  const OctTag d8;
  const QuadTag d4;
  const hn::Repartition<uint64_t, OctTag> d64;
#if HWY_MAX_BYTES >= 64
  const LaneTag d16;
  const auto ab = hn::Add(hn::ConcatLowerLower(d16, b.part[0], a.part[0]),
                          hn::ConcatUpperUpper(d16, b.part[0], a.part[0]));
  const auto cd = hn::Add(hn::ConcatLowerLower(d16, d.part[0], c.part[0]),
                          hn::ConcatUpperUpper(d16, d.part[0], c.part[0]));
  // In blocks of four: [a0 c1 b0 d1] + [a1 c0 b1 d0] = [a c b d].
  const auto acbd = hn::Add(hn::OddEvenBlocks(cd, ab),
                            hn::SwapAdjacentBlocks(hn::OddEvenBlocks(ab, cd)));
  const auto ac = hn::LowerHalf(d8, acbd);
  const auto bd = hn::UpperHalf(d8, acbd);
#else
  const auto a8 = hn::Add(a.part[0], a.part[1]);
  const auto b8 = hn::Add(b.part[0], b.part[1]);
  const auto c8 = hn::Add(c.part[0], c.part[1]);
  const auto e8 = hn::Add(d.part[0], d.part[1]);
  const auto ac = hn::Add(hn::ConcatLowerLower(d8, c8, a8),
                          hn::ConcatUpperUpper(d8, c8, a8));
  const auto bd = hn::Add(hn::ConcatLowerLower(d8, e8, b8),
                          hn::ConcatUpperUpper(d8, e8, b8));
#endif
  // [a02 a13 b02 b13 | c02 c13 d02 d13]
  const auto low =
      hn::InterleaveLower(d64, hn::BitCast(d64, ac), hn::BitCast(d64, bd));
  const auto high =
      hn::InterleaveUpper(d64, hn::BitCast(d64, ac), hn::BitCast(d64, bd));
  const auto pairs = hn::Add(hn::BitCast(d8, low), hn::BitCast(d8, high));
  const auto first = hn::LowerHalf(d4, pairs);
  const auto second = hn::UpperHalf(d4, pairs);
  return hn::Add(hn::ConcatEven(d4, second, first),
                 hn::ConcatOdd(d4, second, first));
}

}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
