// Query and key heads before attention: RMS norm, then rotary embedding.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/rope.cpp"
// clang-format off: Highway's order.
#include "backend/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "backend/cpu/math-inl.h"
#include "backend/cpu/stored-inl.h"
// clang-format on
#include "backend/cpu/head_dim.h"
#include "backend/cpu/ops.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {
namespace {

// What all heads of a row share.
struct Rotation {
  float sin[kMaxHeadDim / 2];
  float cos[kMaxHeadDim / 2];
};

void MakeRotation(int32_t position, const QkNormRopeArgs& args,
                  Rotation& rotation) {
  const float t = static_cast<float>(position);
  for (int64_t i = 0; i < args.rotary_dim / 2; ++i) {
    const SinCosPair pair = SinCos(t * args.inv_freq[i]);
    rotation.sin[i] = pair.sin;
    rotation.cos[i] = pair.cos;
  }
}

// 1 + w, read once per task for all its heads.
void LoadScale(const VectorView& weight, size_t n, float* scale) {
  WithStored(weight.dtype, weight.data, [&](const auto* stored) {
    for (size_t i = 0; i < n; ++i) scale[i] = 1.0f + LoadStored1(stored + i);
  });
}

void NormHead(const float* x, const float* scale, size_t n, float eps,
              float* out) {
  const hn::CappedTag<float, 16> d;
  const auto inv =
      hn::Set(d, InvSqrt1(SumSquares(x, n) / static_cast<float>(n) + eps));
  ForVectors(n, [&](size_t, const auto& load, const auto& store) {
    store(hn::Mul(hn::Mul(load(x), inv), load(scale)), out);
  });
}

void RotateHead(const Rotation& rotation, size_t half, float* x) {
  ForVectors(half, [&](size_t, const auto& load, const auto& store) {
    const auto low = load(x);
    const auto high = load(x + half);
    const auto sin = load(rotation.sin);
    const auto cos = load(rotation.cos);
    store(hn::NegMulAdd(high, sin, hn::Mul(low, cos)), x);
    store(hn::MulAdd(low, sin, hn::Mul(high, cos)), x + half);
  });
}

void QkNormRopeAll(ThreadPool& pool, const QkNormRopeArgs& args) {
  const int64_t dim = args.head_dim;
  SIGNET_CHECK(dim <= kMaxHeadDim && args.rotary_dim <= dim);
  pool.ParallelFor(*args.rows.live, [&](int64_t row, int) {
    const auto width = static_cast<size_t>(dim);
    const auto half = static_cast<size_t>(args.rotary_dim / 2);
    Rotation rotation;
    MakeRotation(args.rows.position[row], args, rotation);
    float scale[kMaxHeadDim];
    LoadScale(args.q_norm, width, scale);
    for (int64_t head = 0; head < args.heads; ++head) {
      const float* q = args.q_gate + (row * args.heads + head) * 2 * dim;
      float* out = args.q_out + (row * args.heads + head) * dim;
      NormHead(q, scale, width, args.eps, out);
      RotateHead(rotation, half, out);
    }
    LoadScale(args.k_norm, width, scale);
    for (int64_t head = 0; head < args.kv_heads; ++head) {
      const int64_t at = (row * args.kv_heads + head) * dim;
      NormHead(args.k + at, scale, width, args.eps, args.k_out + at);
      RotateHead(rotation, half, args.k_out + at);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace signet::backend::cpu {

HWY_EXPORT(QkNormRopeAll);

void QkNormRope(ThreadPool& pool, const QkNormRopeArgs& args) {
  HWY_DYNAMIC_DISPATCH(QkNormRopeAll)(pool, args);
}

}  // namespace signet::backend::cpu
#endif  // HWY_ONCE
