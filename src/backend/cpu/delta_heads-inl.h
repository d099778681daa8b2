// What both forms of the gated delta rule make of a row before the recurrence.
// Re-included for each Highway target.

#if defined(SIGNET_BACKEND_CPU_DELTA_HEADS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SIGNET_BACKEND_CPU_DELTA_HEADS_INL_H_
#undef SIGNET_BACKEND_CPU_DELTA_HEADS_INL_H_
#else
#define SIGNET_BACKEND_CPU_DELTA_HEADS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "backend/cpu/simd_targets.h"
// Highway comes after its configuration.
#include "backend/cpu/math-inl.h"
#include "backend/cpu/stored-inl.h"
#include "backend/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// e^x of a sum of log decays, cut to 0 below e^-80: there nothing is left
/// beside what f32 holds of a newer row, and products with it would be
/// subnormal, which some processors take a hundred times as long over.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V DecayOf(D d, V x) {
  return hn::IfThenElseZero(hn::Ge(x, hn::Set(d, -80.0f)), Exp(d, x));
}

/// One value head's view of the arguments.
class DeltaHead {
 public:
  DeltaHead(const DeltaRuleArgs& args, int64_t head)
      : args_(args),
        head_(head),
        key_head_(head / (args.value_heads / args.key_heads)),
        decay_rate_(Exp1(Value(args.a_log, head))),
        dt_bias_(Value(args.dt_bias, head)),
        q_scale_(InvSqrt1(static_cast<float>(args.key_dim))) {}

  /// The normalised key of a row, and the query, scaled by key_dim^(-1/2).
  HWY_INLINE void Key(int64_t row, float* out) const {
    Normalise(Row(row) + (args_.key_heads + key_head_) * args_.key_dim, 1.0f,
              out);
  }
  HWY_INLINE void Query(int64_t row, float* out) const {
    Normalise(Row(row) + key_head_ * args_.key_dim, q_scale_, out);
  }
  HWY_INLINE const float* Values(int64_t row) const {
    return Row(row) + 2 * args_.key_heads * args_.key_dim +
           head_ * args_.value_dim;
  }
  /// Of rows [first, first + n): beta.
  void Betas(int64_t first, size_t n, float* out) const {
    const hn::CappedTag<float, 16> d;
    Gather(args_.b, first, n, out);
    ForVectors(n, [&](size_t, const auto& load, const auto& store) {
      store(Sigmoid(d, load(out)), out);
    });
  }
  /// The logarithms of their decays, at most 0.
  void LogDecays(int64_t first, size_t n, float* out) const {
    const hn::CappedTag<float, 16> d;
    const auto rate = hn::Set(d, -decay_rate_);
    const auto bias = hn::Set(d, dt_bias_);
    Gather(args_.a, first, n, out);
    ForVectors(n, [&](size_t, const auto& load, const auto& store) {
      store(hn::Mul(rate, Softplus(d, hn::Add(load(out), bias))), out);
    });
  }
  HWY_INLINE float* State(int64_t row) const {
    return args_.state + (args_.rows.slot[row] * args_.value_heads + head_) *
                             args_.key_dim * args_.value_dim;
  }
  HWY_INLINE float* Out(int64_t row) const {
    return args_.out + (row * args_.value_heads + head_) * args_.value_dim;
  }

 private:
  void Gather(const float* from, int64_t first, size_t n, float* out) const {
    for (size_t i = 0; i < n; ++i) {
      out[i] =
          from[(first + static_cast<int64_t>(i)) * args_.value_heads + head_];
    }
  }

  HWY_INLINE const float* Row(int64_t row) const {
    return args_.qkv + row * (2 * args_.key_heads * args_.key_dim +
                              args_.value_heads * args_.value_dim);
  }

  HWY_INLINE void Normalise(const float* x, float scale, float* out) const {
    const hn::CappedTag<float, 16> d;
    const auto n = static_cast<size_t>(args_.key_dim);
    const auto factor = hn::Set(d, InvSqrt1(SumSquares(x, n) + 1e-6f) * scale);
    ForVectors(n, [&](size_t, const auto& load, const auto& store) {
      store(hn::Mul(load(x), factor), out);
    });
  }

  static float Value(const VectorView& view, int64_t i) {
    float value = 0;
    WithStored(view.dtype, view.data,
               [&](const auto* stored) { value = LoadStored1(stored + i); });
    return value;
  }

  const DeltaRuleArgs& args_;
  const int64_t head_;
  const int64_t key_head_;
  const float decay_rate_;
  const float dt_bias_;
  const float q_scale_;
};

}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#endif  // SIGNET_BACKEND_CPU_DELTA_HEADS_INL_H_
