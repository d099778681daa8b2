#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "backend/cpu/kernel_testing.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/sequence_testing.h"

namespace signet::backend::cpu {
namespace {

using tensor::DType;
using namespace testing;  // NOLINT(google-build-using-namespace)

constexpr int64_t kSlots = 4;

// One layer's convolution over one sequence of `length` inputs.
struct Problem {
  Problem(Random& random, DType dtype, int64_t channels, int64_t taps,
          int64_t length)
      : channels(channels),
        taps(taps),
        length(length),
        weight(random, dtype, channels, taps),
        u(RandomFloats(random, length * channels)) {
    for (float& value : u) value *= 20;
  }

  std::vector<double> Want() const {
    std::vector<double> want;
    for (int64_t t = 0; t < length; ++t) {
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < taps; ++j) {
          const int64_t from = t - (taps - 1) + j;
          if (from < 0) continue;
          sum += double{weight.row(c)[j]} *
                 double{u[static_cast<size_t>(from * channels + c)]};
        }
        want.push_back(SiluOf(sum));
      }
    }
    return want;
  }
  int64_t state_size() const { return channels * (taps - 1); }
  // State of all slots, with NaN where nothing was written.
  std::vector<float> EmptyState() const {
    return std::vector<float>(static_cast<size_t>(kSlots * state_size()),
                              std::numeric_limits<float>::quiet_NaN());
  }
  // Outputs, then the state of the slot.
  std::vector<float> Run(ThreadPool& pool, RowForm form, int64_t slot,
                         int64_t piece) const {
    std::vector<float> state = EmptyState();
    std::vector<float> all;
    for (int64_t at = 0; at < length; at += piece) {
      const int64_t live = std::min(piece, length - at);
      const SequenceRows rows = SequenceRows::One(live, slot, at);
      Guarded<float> out(rows.capacity() * channels);
      Conv(pool, {.rows = rows.view(),
                  .form = form,
                  .u = u.data() + at * channels,
                  .weight = weight.view(),
                  .state = state.data(),
                  .out = out.data()});
      const std::vector<float> got = Written(out, live * channels);
      all.insert(all.end(), got.begin(), got.end());
    }
    for (int64_t i = 0; i < kSlots * state_size(); ++i) {
      if (i / state_size() == slot) continue;
      EXPECT_TRUE(std::isnan(state[static_cast<size_t>(i)])) << "foreign slot";
    }
    const auto mine = state.begin() + slot * state_size();
    all.insert(all.end(), mine, mine + state_size());
    return all;
  }

  int64_t channels;
  int64_t taps;
  int64_t length;
  StoredMatrix weight;
  std::vector<float> u;
};

TEST(ConvTest, AgreesWithDoubleHoweverTheSequenceIsCut) {
  Random random(1);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t taps : {2, 3, 4, 7}) {
      for (const int64_t channels : {1, 24, 64, 130}) {
        for (const int64_t length : {1, 2, 3, 5, 65, 130}) {
          const Problem problem(random, dtype, channels, taps, length);
          const std::vector<float> whole =
              SameEverywhere([&](ThreadPool& pool) {
                return problem.Run(pool, RowForm::kOneSequence, 2, length);
              });
          const std::vector<float> out(whole.begin(),
                                       whole.begin() + length * channels);
          ASSERT_LT(WorstError(out, problem.Want()), 1e-6)
              << taps << " " << channels << " " << length;
          ThreadPool pool(2);
          for (const int64_t piece : {1, 2, 7, 64}) {
            ASSERT_EQ(problem.Run(pool, RowForm::kOneSequence, 0, piece), whole)
                << piece;
          }
          ASSERT_EQ(problem.Run(pool, RowForm::kSequenceEach, 3, 1), whole);
        }
      }
    }
  }
}

TEST(ConvTest, StateHoldsTheLastRawColumnsOldestFirst) {
  Random random(2);
  const Problem problem(random, DType::kF32, 2, 4, 5);
  ThreadPool pool(1);
  const std::vector<float> all = problem.Run(pool, RowForm::kOneSequence, 1, 5);
  for (int64_t c = 0; c < 2; ++c) {
    for (int64_t j = 0; j < 3; ++j) {
      EXPECT_EQ(all[static_cast<size_t>(5 * 2 + c * 3 + j)],
                problem.u[static_cast<size_t>((2 + j) * 2 + c)]);
    }
  }
}

TEST(ConvTest, RowsOfDifferentSequencesDoNotMeet) {
  Random random(3);
  const int64_t channels = 70;
  const int64_t steps = 6;
  const Problem one(random, DType::kBF16, channels, 4, steps);
  Problem other = one;
  other.u = RandomFloats(random, steps * channels);
  ThreadPool pool(2);
  std::vector<float> state = one.EmptyState();
  std::vector<float> got_one, got_other;
  for (int64_t t = 0; t < steps; ++t) {
    // The second sequence starts two steps later, in a lower slot.
    std::vector<int32_t> slots = {3}, positions = {static_cast<int32_t>(t)};
    std::vector<float> u(one.u.begin() + t * channels,
                         one.u.begin() + (t + 1) * channels);
    if (t >= 2) {
      slots.push_back(0);
      positions.push_back(static_cast<int32_t>(t - 2));
      u.insert(u.end(), other.u.begin() + (t - 2) * channels,
               other.u.begin() + (t - 1) * channels);
    }
    const SequenceRows rows = SequenceRows::Each(slots, positions);
    Guarded<float> out(rows.capacity() * channels);
    Conv(pool, {.rows = rows.view(),
                .form = RowForm::kSequenceEach,
                .u = u.data(),
                .weight = one.weight.view(),
                .state = state.data(),
                .out = out.data()});
    const std::vector<float> got = Written(out, rows.live() * channels);
    got_one.insert(got_one.end(), got.begin(), got.begin() + channels);
    got_other.insert(got_other.end(), got.begin() + channels, got.end());
  }
  const std::vector<float> want_one =
      one.Run(pool, RowForm::kOneSequence, 0, steps);
  const std::vector<float> want_other =
      other.Run(pool, RowForm::kOneSequence, 0, steps);
  EXPECT_TRUE(SameBits(got_one.data(), want_one.data(), steps * channels));
  EXPECT_TRUE(
      SameBits(got_other.data(), want_other.data(), (steps - 2) * channels));
}

TEST(ConvTest, NoLiveRowTouchesNothing) {
  Random random(4);
  const Problem problem(random, DType::kF32, 8, 4, 1);
  ThreadPool pool(2);
  const SequenceRows rows = SequenceRows::One(0, 0, 0);
  Guarded<float> out(8), state(8 * 3);
  for (const RowForm form : {RowForm::kOneSequence, RowForm::kSequenceEach}) {
    Conv(pool, {.rows = rows.view(),
                .form = form,
                .u = problem.u.data(),
                .weight = problem.weight.view(),
                .state = state.data(),
                .out = out.data()});
  }
  Written(out, 0);
  Written(state, 0);
}

}  // namespace
}  // namespace signet::backend::cpu
