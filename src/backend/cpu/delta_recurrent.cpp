// The gated delta rule token by token, for rows of different sequences.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/delta_recurrent.cpp"
// clang-format off: Highway's order.
#include "backend/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "backend/cpu/delta_heads-inl.h"
#include "backend/cpu/math-inl.h"
// clang-format on
#include <algorithm>

#include "backend/cpu/head_dim.h"
#include "backend/cpu/ops.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {
namespace {

using StateTag = hn::CappedTag<float, 16>;
constexpr size_t kLanes = hn::MaxLanes(StateTag());
// Enough independent chains to hide the latency of a multiply-add.
constexpr size_t kVectors = 8;

struct Token {
  float q[kMaxHeadDim];
  float k[kMaxHeadDim];
  const float* v;
  float beta;
  float decay;
  float* out;
};

// One token over the columns at `column`, which no other column touches: the
// state is read once for S^T k and once more, from near memory, for the update
// and S^T q.
template <size_t kCount, class Load, class Store>
HWY_INLINE void StepColumns(const Token& token, size_t key_dim, size_t stride,
                            float* state, const Load& load,
                            const Store& store) {
  const StateTag d;
  hn::Vec<StateTag> delta[kCount];
  for (size_t i = 0; i < kCount; ++i) delta[i] = hn::Zero(d);
  for (size_t r = 0; r < key_dim; ++r) {
    const auto k = hn::Set(d, token.k[r]);
    for (size_t i = 0; i < kCount; ++i) {
      delta[i] = hn::MulAdd(k, load(state + r * stride, i), delta[i]);
    }
  }
  const auto decay = hn::Set(d, token.decay);
  const auto beta = hn::Set(d, token.beta);
  hn::Vec<StateTag> out[kCount];
  for (size_t i = 0; i < kCount; ++i) {
    delta[i] = hn::Mul(beta, hn::NegMulAdd(decay, delta[i], load(token.v, i)));
    out[i] = hn::Zero(d);
  }
  for (size_t r = 0; r < key_dim; ++r) {
    const auto k = hn::Set(d, token.k[r]);
    const auto q = hn::Set(d, token.q[r]);
    for (size_t i = 0; i < kCount; ++i) {
      const auto decayed = hn::Mul(decay, load(state + r * stride, i));
      const auto updated = hn::MulAdd(k, delta[i], decayed);
      store(updated, state + r * stride, i);
      out[i] = hn::MulAdd(q, updated, out[i]);
    }
  }
  for (size_t i = 0; i < kCount; ++i) store(out[i], token.out, i);
}

template <size_t kCount>
HWY_INLINE void StepWhole(const Token& token, size_t key_dim, size_t stride,
                          float* state, size_t column) {
  const StateTag d;
  StepColumns<kCount>(
      token, key_dim, stride, state,
      [&](const float* p, size_t i) {
        return hn::LoadU(d, p + column + i * kLanes);
      },
      [&](auto v, float* p, size_t i) {
        hn::StoreU(v, d, p + column + i * kLanes);
      });
}

void StepToken(const Token& token, size_t key_dim, size_t value_dim,
               float* state) {
  const StateTag d;
  size_t column = 0;
  for (; column + kVectors * kLanes <= value_dim; column += kVectors * kLanes) {
    StepWhole<kVectors>(token, key_dim, value_dim, state, column);
  }
  for (; column + kLanes <= value_dim; column += kLanes) {
    StepWhole<1>(token, key_dim, value_dim, state, column);
  }
  if (column == value_dim) return;
  const auto mask = hn::FirstN(d, value_dim - column);
  StepColumns<1>(
      token, key_dim, value_dim, state,
      [&](const float* p, size_t) {
        return hn::MaskedLoad(mask, d, p + column);
      },
      [&](auto v, float* p, size_t) {
        hn::BlendedStore(v, mask, d, p + column);
      });
}

void StepRow(const DeltaRuleArgs& args, const DeltaHead& head, int64_t row) {
  const auto key_dim = static_cast<size_t>(args.key_dim);
  const auto value_dim = static_cast<size_t>(args.value_dim);
  float* state = head.State(row);
  if (args.rows.position[row] == 0) {
    std::fill_n(state, key_dim * value_dim, 0.0f);
  }
  Token token;
  head.Query(row, token.q);
  head.Key(row, token.k);
  token.v = head.Values(row);
  head.Betas(row, 1, &token.beta);
  head.LogDecays(row, 1, &token.decay);
  const ScalarTag d;
  token.decay = hn::GetLane(DecayOf(d, hn::Set(d, token.decay)));
  token.out = head.Out(row);
  StepToken(token, key_dim, value_dim, state);
}

// Whether an earlier row has the slot of `row`.
bool FollowsAnother(const Rows& rows, int64_t row) {
  return std::find(rows.slot, rows.slot + row, rows.slot[row]) !=
         rows.slot + row;
}

void DeltaRecurrentAll(ThreadPool& pool, const DeltaRuleArgs& args) {
  SIGNET_CHECK(args.key_dim <= kMaxHeadDim);
  const int64_t live = *args.rows.live;
  const int64_t heads = args.value_heads;
  pool.ParallelFor(live * heads, [&](int64_t task, int) {
    const int64_t first = task / heads;
    // The first row of a slot runs all of them, in order.
    if (FollowsAnother(args.rows, first)) return;
    const DeltaHead head(args, task % heads);
    for (int64_t row = first; row < live; ++row) {
      if (args.rows.slot[row] == args.rows.slot[first]) {
        StepRow(args, head, row);
      }
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace signet::backend::cpu {

HWY_EXPORT(DeltaRecurrentAll);

void DeltaRecurrent(ThreadPool& pool, const DeltaRuleArgs& args) {
  HWY_DYNAMIC_DISPATCH(DeltaRecurrentAll)(pool, args);
}

}  // namespace signet::backend::cpu
#endif  // HWY_ONCE
