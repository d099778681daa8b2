// Draws the token of a row. Sums of probabilities are in double and in the
// order of the candidates, so that a draw does not hang on rounding.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/sample.cpp"
// clang-format off: Highway's order.
#include "backend/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "backend/cpu/math-inl.h"
// clang-format on
#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>

#include "backend/cpu/ops.h"
#include "backend/cpu/philox.h"

HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int32_t kNoId = -1;

// The greatest logit, or NaN if one is not finite.
float GreatestFinite(const float* logits, size_t n) {
  const hn::CappedTag<float, 16> d;
  auto most = hn::Set(d, -std::numeric_limits<float>::infinity());
  // x * 0 is 0 for a finite x and NaN for any other; the sum keeps a NaN.
  auto fault = hn::Zero(d);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, logits + i);
    most = hn::Max(most, x);
    fault = hn::MulAdd(x, hn::Zero(d), fault);
  }
  float greatest = hn::GetLane(hn::MaxOfLanes(d, most));
  float sum = hn::GetLane(hn::SumOfLanes(d, fault));
  for (; i < n; ++i) {
    greatest = std::max(greatest, logits[i]);
    sum += logits[i] * 0.0f;
  }
  return sum == 0.0f ? greatest : std::numeric_limits<float>::quiet_NaN();
}

// The candidates of one row in order (logit descending, id ascending), put in
// order only as far as they are asked for: a draw seldom needs more than a few
// of a large vocabulary.
class Candidates {
 public:
  Candidates(const SamplingRow& params, const float* logits, float greatest,
             int32_t* ids, size_t count)
      : logits_(logits),
        greatest_(greatest),
        temperature_(params.temperature),
        ids_(ids),
        count_(count) {
    if (params.top_k > 0 && static_cast<size_t>(params.top_k) < count_) {
      Sort(static_cast<size_t>(params.top_k));
      count_ = sorted_;
      limited_ = true;
    }
  }

  size_t count() const { return count_; }
  int32_t Id(size_t rank) {
    if (rank >= sorted_) Sort(std::min(count_, std::max(kFirst, 8 * rank)));
    return ids_[rank];
  }
  /// Proportional to the probability; 1 for the most likely.
  double Weight(size_t rank) {
    return double{Exp1((logits_[Id(rank)] - greatest_) / temperature_)};
  }

  /// The sum of the weights of all candidates, in their order if top_k limits
  /// them, else in that of their ids.
  double Total() const {
    const hn::CappedTag<float, 16> d;
    const auto greatest = hn::Set(d, greatest_);
    const auto temperature = hn::Set(d, temperature_);
    constexpr size_t kBlock = 256;
    float weights[kBlock];
    double total = 0;
    for (size_t first = 0; first < count_; first += kBlock) {
      const size_t n = std::min(kBlock, count_ - first);
      for (size_t i = 0; i < n; ++i) {
        weights[i] = logits_[limited_ ? static_cast<size_t>(ids_[first + i])
                                      : first + i];
      }
      ForVectors(n, [&](size_t, const auto& load, const auto& store) {
        const auto below = hn::Sub(load(weights), greatest);
        store(Exp(d, hn::Div(below, temperature)), weights);
      });
      for (size_t i = 0; i < n; ++i) total += double{weights[i]};
    }
    return total;
  }

 private:
  static constexpr size_t kFirst = 256;

  // Puts the first `count` in their places, count > 0.
  void Sort(size_t count) {
    const auto before = [this](int32_t a, int32_t b) {
      return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
    };
    const size_t held =
        2 * count < count_ ? Collect(count, before) : CollectAll();
    if (count < held) {
      std::nth_element(ids_, ids_ + count - 1, ids_ + held, before);
    }
    std::sort(ids_, ids_ + count, before);
    sorted_ = count;
  }

  size_t CollectAll() {
    std::iota(ids_, ids_ + count_, 0);
    return count_;
  }

  // Gathers at most 2 * count ids, the first `count` of the order among them.
  // Ids come ascending, so one that only equals the `count`th best so far is
  // behind it.
  template <class Before>
  size_t Collect(size_t count, const Before& before) {
    const hn::CappedTag<float, 16> d;
    const size_t lanes = hn::Lanes(d);
    float bar = -std::numeric_limits<float>::infinity();
    size_t held = 0;
    for (size_t i = 0; i < count_; i += lanes) {
      const size_t n = std::min(lanes, count_ - i);
      if (n == lanes &&
          hn::AllFalse(d, hn::Gt(hn::LoadU(d, logits_ + i), hn::Set(d, bar)))) {
        continue;
      }
      for (size_t j = i; j < i + n; ++j) {
        if (!(logits_[j] > bar)) continue;
        ids_[held++] = static_cast<int32_t>(j);
        if (held < 2 * count) continue;
        std::nth_element(ids_, ids_ + count - 1, ids_ + held, before);
        bar = logits_[ids_[count - 1]];
        held = count;
      }
    }
    return held;
  }

  const float* logits_;
  const float greatest_;
  const float temperature_;
  int32_t* ids_;
  size_t count_;
  size_t sorted_ = 0;
  bool limited_ = false;  // by top_k
};

int32_t Draw(const SamplingRow& params, Candidates& candidates) {
  double kept = candidates.Total();
  size_t last = candidates.count() - 1;
  if (params.top_p < 1.0f) {
    const double wanted = double{params.top_p} * kept;
    double sum = 0;
    for (size_t rank = 0; rank <= last; ++rank) {
      sum += candidates.Weight(rank);
      if (sum >= wanted) last = rank;
    }
    kept = sum;
  }
  const PhiloxCounter words =
      Philox4x32({params.sequence, params.position, 0, 0},
                 {params.seed_low, params.seed_high});
  const double threshold = double{UnitFloat(words[0])} * kept;
  double sum = 0;
  for (size_t rank = 0; rank < last; ++rank) {
    sum += candidates.Weight(rank);
    if (sum > threshold) return candidates.Id(rank);
  }
  return candidates.Id(last);
}

// The id of one row; sets `flag` if a logit is not finite.
int32_t SampleRow(const SamplingRow& params, const float* logits, int64_t vocab,
                  int32_t* scratch, int32_t& flag) {
  const auto count =
      static_cast<size_t>(std::clamp<int64_t>(params.id_bound, 0, vocab));
  if (count == 0) return kNoId;
  const float greatest = GreatestFinite(logits, count);
  if (greatest != greatest) {
    flag = kFlagNonFinite;
    return kNoId;
  }
  if (!(params.temperature > 0.0f)) {
    return static_cast<int32_t>(std::find(logits, logits + count, greatest) -
                                logits);
  }
  Candidates candidates(params, logits, greatest, scratch, count);
  return Draw(params, candidates);
}

void SampleAll(ThreadPool& pool, const SampleArgs& args) {
  const int64_t live = *args.rows.live;
  const bool last_only = args.which == LogitRows::kLast;
  const int64_t count = last_only ? std::min<int64_t>(live, 1) : live;
  std::atomic<int32_t> flags = 0;
  pool.ParallelFor(count, [&](int64_t row, int) {
    int32_t flag = 0;
    args.ids[row] =
        SampleRow(args.params[row], args.logits + row * args.vocab, args.vocab,
                  args.scratch + row * args.vocab, flag);
    flags.fetch_or(flag, std::memory_order_relaxed);
  });
  *args.flag |= flags.load(std::memory_order_relaxed);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace signet::backend::cpu {

HWY_EXPORT(SampleAll);

void Sample(ThreadPool& pool, const SampleArgs& args) {
  HWY_DYNAMIC_DISPATCH(SampleAll)(pool, args);
}

}  // namespace signet::backend::cpu
#endif  // HWY_ONCE
