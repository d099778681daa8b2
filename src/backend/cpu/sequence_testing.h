#pragma once
// What tests of kernels over sequences share: rows with slots and positions,
// and runs on every instruction set and number of threads, which must agree bit
// for bit. Only tests include this.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "backend/cpu/kernel_testing.h"
#include "backend/cpu/thread_pool.h"

namespace signet::backend::cpu::testing {

/// The rows of a call with their slots and positions. Rows past the live ones
/// hold values that no kernel could use.
class SequenceRows {
 public:
  /// Rows of one sequence from `position` on.
  static SequenceRows One(int64_t live, int64_t slot, int64_t position) {
    SequenceRows rows(live);
    for (int64_t i = 0; i < live; ++i) rows.Set(i, slot, position + i);
    return rows;
  }
  /// Row i is sequence slots[i] at positions[i].
  static SequenceRows Each(const std::vector<int32_t>& slots,
                           const std::vector<int32_t>& positions) {
    SequenceRows rows(static_cast<int64_t>(slots.size()));
    for (size_t i = 0; i < slots.size(); ++i) {
      rows.Set(static_cast<int64_t>(i), slots[i], positions[i]);
    }
    return rows;
  }

  Rows view() const {
    return {.live = &live_,
            .slot = slot_.data(),
            .position = position_.data(),
            .capacity = static_cast<int64_t>(slot_.size())};
  }
  int64_t live() const { return live_; }
  int64_t capacity() const { return live_ + kInert; }

 private:
  static constexpr int64_t kInert = 3;
  explicit SequenceRows(int64_t live)
      : live_(static_cast<int32_t>(live)),
        slot_(static_cast<size_t>(live + kInert), 1 << 28),
        position_(slot_) {}
  void Set(int64_t row, int64_t slot, int64_t position) {
    slot_[static_cast<size_t>(row)] = static_cast<int32_t>(slot);
    position_[static_cast<size_t>(row)] = static_cast<int32_t>(position);
  }

  int32_t live_;
  std::vector<int32_t> slot_;
  std::vector<int32_t> position_;
};

/// run(pool) -> floats, on every instruction set and on 1, 2 and 3 threads.
template <class Run>
std::vector<float> SameEverywhere(const Run& run) {
  std::vector<float> first;
  for (const int64_t target : OnTarget::All()) {
    const OnTarget on(target);
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      std::vector<float> got = run(pool);
      if (first.empty()) first = got;
      EXPECT_EQ(got.size(), first.size());
      EXPECT_TRUE(
          SameBits(got.data(), first.data(), static_cast<int64_t>(got.size())))
          << hwy::TargetName(target) << ", threads " << threads;
    }
  }
  return first;
}

/// The first `count` values, after a check that nothing else was written.
inline std::vector<float> Written(const Guarded<float>& out, int64_t count) {
  EXPECT_TRUE(out.CanariesIntact());
  for (int64_t i = count; i < out.size(); ++i) {
    EXPECT_TRUE(out.IsPoison(i)) << "written past the live rows: " << i;
  }
  std::vector<float> values = out.Values();
  values.resize(static_cast<size_t>(count));
  return values;
}

/// The greatest |got - want|, as a share of the greatest |want| (at least
/// `floor`). Infinite if a value is not finite or the sizes differ.
inline double WorstError(const std::vector<float>& got,
                         const std::vector<double>& want, double floor = 1e-3) {
  double worst = 0;
  double most = floor;
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want[i]));
    most = std::max(most, std::abs(want[i]));
  }
  return worst / most;
}

inline double WorstError(const std::vector<float>& got,
                         const std::vector<float>& want, double floor = 1e-3) {
  return WorstError(got, std::vector<double>(want.begin(), want.end()), floor);
}

inline double SigmoidOf(double x) { return 1 / (1 + std::exp(-x)); }
inline double SiluOf(double x) { return x * SigmoidOf(x); }
inline double SoftplusOf(double x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

}  // namespace signet::backend::cpu::testing
