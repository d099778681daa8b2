// Routers: softmax top-k, and precomputed routes.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "backend/cpu/ops.h"
#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/route.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once a target.
#include "backend/cpu/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {

/// The sum of exp(scores[e] - max), e ascending.
float SumOfExponentials(const float* scores, int64_t count, float max) {
  const hn::CappedTag<float, 8> d;
  constexpr int64_t kStep = 8;
  HWY_ALIGN float terms[kStep];
  float sum = 0.0f;
  int64_t e = 0;
  for (; e + kStep <= count; e += kStep) {
    hn::Store(Exp(d, hn::Sub(hn::LoadU(d, scores + e), hn::Set(d, max))), d,
              terms);
    for (float term : terms) sum += term;
  }
  for (; e < count; ++e) sum += Exp1(scores[e] - max);
  return sum;
}

/// Turns the selected scores, highest first, into weights.
void WeighSelected(const RouteArgs& args, const float* scores, float* weights) {
  const float max = weights[0];
  float sum = args.renormalise
                  ? 0.0f
                  : SumOfExponentials(scores, args.num_experts, max);
  for (int64_t k = 0; k < args.top_k; ++k) {
    weights[k] = Exp1(weights[k] - max);
    if (args.renormalise) sum += weights[k];
  }
  for (int64_t k = 0; k < args.top_k; ++k) weights[k] /= sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace signet::backend::cpu {
namespace {

constexpr int64_t kRowsPerTask = 4;

bool AllFinite(const float* values, int64_t count) {
  constexpr uint32_t kExponent = 0x7f800000;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    finite &= (std::bit_cast<uint32_t>(values[i]) & kExponent) != kExponent;
  }
  return finite;
}

void Raise(int32_t* flag, int32_t bits) {
  if (bits != 0) {
    std::atomic_ref(*flag).fetch_or(bits, std::memory_order_relaxed);
  }
}

void MarkAbsent(int64_t top_k, int32_t* ids, float* weights) {
  std::fill_n(ids, top_k, -1);
  std::fill_n(weights, top_k, 0.0f);
}

/// The top_k highest scores and their ids, ties to the lower id: an insertion
/// sort in the outputs themselves.
void SelectTop(const float* scores, int64_t num_experts, int64_t top_k,
               int32_t* ids, float* selected) {
  int64_t count = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    const float score = scores[e];
    if (count == top_k) {
      if (score <= selected[count - 1]) continue;
      --count;
    }
    int64_t at = count++;
    for (; at > 0 && selected[at - 1] < score; --at) {
      selected[at] = selected[at - 1];
      ids[at] = ids[at - 1];
    }
    selected[at] = score;
    ids[at] = static_cast<int32_t>(e);
  }
}

int32_t FaultsOf(const PrecomputedRouteArgs& args, const int32_t* ids,
                 const float* weights) {
  int32_t faults = AllFinite(weights, args.top_k) ? 0 : kFlagNonFinite;
  for (int64_t k = 0; k < args.top_k; ++k) {
    if (ids[k] < 0 || ids[k] >= args.num_experts) {
      faults |= kFlagExpertOutOfRange;
    } else if (std::find(ids, ids + k, ids[k]) != ids + k) {
      faults |= kFlagExpertRepeated;
    }
  }
  return faults;
}

template <typename RowBody>
void ForLiveRows(ThreadPool& pool, const Rows& rows, const RowBody& body) {
  const int64_t live = *rows.live;
  pool.ParallelFor((live + kRowsPerTask - 1) / kRowsPerTask,
                   [&](int64_t task, int) {
                     const int64_t begin = task * kRowsPerTask;
                     const int64_t end = std::min(live, begin + kRowsPerTask);
                     for (int64_t row = begin; row < end; ++row) body(row);
                   });
}

}  // namespace

HWY_EXPORT(WeighSelected);

void Route(ThreadPool& pool, const RouteArgs& args) {
  ForLiveRows(pool, args.rows, [&](int64_t row) {
    const float* scores = args.scores + row * args.num_experts;
    int32_t* ids = args.ids + row * args.top_k;
    float* weights = args.weights + row * args.top_k;
    if (!AllFinite(scores, args.num_experts)) {
      Raise(args.flag, kFlagNonFinite);
      return MarkAbsent(args.top_k, ids, weights);
    }
    SelectTop(scores, args.num_experts, args.top_k, ids, weights);
    HWY_DYNAMIC_DISPATCH(WeighSelected)(args, scores, weights);
  });
}

void PrecomputedRoute(ThreadPool& pool, const PrecomputedRouteArgs& args) {
  ForLiveRows(pool, args.rows, [&](int64_t row) {
    const int32_t* in_ids = args.in_ids + row * args.top_k;
    const float* in_weights = args.in_weights + row * args.top_k;
    int32_t* ids = args.ids + row * args.top_k;
    float* weights = args.weights + row * args.top_k;
    const int32_t faults = FaultsOf(args, in_ids, in_weights);
    Raise(args.flag, faults);
    if (faults != 0) return MarkAbsent(args.top_k, ids, weights);
    std::copy_n(in_ids, args.top_k, ids);
    std::copy_n(in_weights, args.top_k, weights);
  });
}

}  // namespace signet::backend::cpu
#endif
