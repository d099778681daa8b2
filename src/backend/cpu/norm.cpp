// RMS norms, over a row (zero-centred weights) and over a head (gated).

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/norm.cpp"
// clang-format off: Highway's order.
#include "backend/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "backend/cpu/math-inl.h"
#include "backend/cpu/stored-inl.h"
// clang-format on
#include "backend/cpu/ops.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {
namespace {

float InvRms(const float* x, size_t width, float eps) {
  return InvSqrt1(SumSquares(x, width) / static_cast<float>(width) + eps);
}

// Calls body(i, w, load, store) as ForVectors does, with the weights at i.
template <typename T, class Body>
HWY_INLINE void ForWeights(const T* weight, size_t n, const Body& body) {
  const hn::CappedTag<float, 16> d;
  ForVectors(n, [&](size_t i, const auto& load, const auto& store) {
    const auto w = i + hn::Lanes(d) <= n ? LoadStored(d, weight + i)
                                         : LoadStoredN(d, weight + i, n - i);
    body(w, load, store);
  });
}

void NormAll(ThreadPool& pool, const NormArgs& args) {
  const hn::CappedTag<float, 16> d;
  const auto width = static_cast<size_t>(args.width);
  WithStored(args.weight.dtype, args.weight.data, [&](const auto* weight) {
    pool.ParallelFor(*args.rows.live, [&](int64_t row, int) {
      const float* x = args.x + row * args.width;
      float* out = args.out + row * args.width;
      const auto inv = hn::Set(d, InvRms(x, width, args.eps));
      const auto offset = hn::Set(d, args.offset);
      ForWeights(
          weight, width, [&](auto w, const auto& load, const auto& store) {
            store(hn::Mul(hn::Mul(load(x), inv), hn::Add(offset, w)), out);
          });
    });
  });
}

void GatedNormAll(ThreadPool& pool, const GatedNormArgs& args) {
  const hn::CappedTag<float, 16> d;
  const auto width = static_cast<size_t>(args.head_dim);
  WithStored(args.weight.dtype, args.weight.data, [&](const auto* weight) {
    pool.ParallelFor(*args.rows.live, [&](int64_t row, int) {
      for (int64_t head = 0; head < args.heads; ++head) {
        const int64_t at = (row * args.heads + head) * args.head_dim;
        const float* o = args.o + at;
        const float* z = args.z + at;
        float* out = args.out + at;
        const auto inv = hn::Set(d, InvRms(o, width, args.eps));
        ForWeights(weight, width,
                   [&](auto w, const auto& load, const auto& store) {
                     const auto normed = hn::Mul(w, hn::Mul(load(o), inv));
                     store(hn::Mul(normed, Silu(d, load(z))), out);
                   });
      }
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace signet::backend::cpu {

HWY_EXPORT(NormAll);
HWY_EXPORT(GatedNormAll);

void Norm(ThreadPool& pool, const NormArgs& args) {
  HWY_DYNAMIC_DISPATCH(NormAll)(pool, args);
}

void GatedNorm(ThreadPool& pool, const GatedNormArgs& args) {
  HWY_DYNAMIC_DISPATCH(GatedNormAll)(pool, args);
}

}  // namespace signet::backend::cpu
#endif  // HWY_ONCE
