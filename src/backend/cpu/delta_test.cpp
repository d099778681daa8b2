#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "backend/cpu/kernel_testing.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/sequence_testing.h"
#include "tensor/delta_chunk.h"

namespace signet::backend::cpu {
namespace {

using tensor::DType;
using namespace testing;  // NOLINT(google-build-using-namespace)

constexpr int64_t kSlots = 3;

struct Heads {
  int64_t key_heads;
  int64_t value_heads;
  int64_t dk;
  int64_t dv;
};
constexpr Heads kHeads[] = {{1, 1, 24, 32},  {2, 4, 32, 24}, {1, 2, 64, 128},
                            {2, 2, 128, 64}, {1, 3, 17, 19}, {1, 1, 128, 128},
                            {1, 1, 256, 256}};

enum class Regime { kMild, kHard };

// A sequence of `length` rows and the state before it.
struct Problem {
  Problem(Random& random, const Heads& h, int64_t length, Regime regime)
      : h(h),
        length(length),
        qkv_width(2 * h.key_heads * h.dk + h.value_heads * h.dv),
        qkv(RandomFloats(random, length * qkv_width)),
        b(RandomFloats(random, length * h.value_heads)),
        a(RandomFloats(random, length * h.value_heads)),
        a_log(random, DType::kBF16, 1, h.value_heads),
        dt_bias(random, DType::kF32, 1, h.value_heads),
        initial(RandomFloats(random, state_size())) {
    if (regime == Regime::kMild) {
      for (float& value : a) value -= 2;
      return;
    }
    // Decays from 1 to e^-300 side by side, beta near 1, keys that repeat.
    for (float& value : a) {
      const uint32_t kind = random() % 4;
      value = kind == 0 ? 300.0f : kind == 1 ? -20.0f : value * 4;
    }
    for (float& value : b) value = 6 + 3 * value;
    for (int64_t t = 0; t < length; ++t) {
      float* row = qkv.data() + t * qkv_width;
      const int64_t keys = h.key_heads * h.dk;
      if (t % 3 != 0) std::copy_n(row + keys - qkv_width, keys, row + keys);
      for (int64_t i = 2 * keys; i < qkv_width; ++i) row[i] *= 25;
    }
  }

  int64_t state_size() const { return h.value_heads * h.dk * h.dv; }
  int64_t out_width() const { return h.value_heads * h.dv; }

  DeltaRuleArgs Args(const SequenceRows& rows, int64_t at) const {
    return {.rows = rows.view(),
            .key_heads = h.key_heads,
            .value_heads = h.value_heads,
            .key_dim = h.dk,
            .value_dim = h.dv,
            .qkv = qkv.data() + at * qkv_width,
            .b = b.data() + at * h.value_heads,
            .a = a.data() + at * h.value_heads,
            .a_log = {a_log.data(), DType::kBF16, h.value_heads},
            .dt_bias = {dt_bias.data(), DType::kF32, h.value_heads}};
  }

  // Outputs, then the final state. At position 0 the slot holds NaN.
  std::vector<float> Run(ThreadPool& pool, DeltaForm form, int64_t slot,
                         int64_t position, int64_t piece) const {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> state(static_cast<size_t>(kSlots * state_size()), nan);
    if (position > 0) {
      std::copy(initial.begin(), initial.end(),
                state.begin() + slot * state_size());
    }
    std::vector<float> all;
    for (int64_t at = 0; at < length; at += piece) {
      const int64_t live = std::min(piece, length - at);
      const SequenceRows rows = SequenceRows::One(live, slot, position + at);
      Guarded<float> out(rows.capacity() * out_width());
      Guarded<float> scratch(h.value_heads *
                             tensor::DeltaScratchFloats(h.dk, h.dv));
      DeltaRuleArgs args = Args(rows, at);
      args.form = form;
      args.state = state.data();
      args.scratch = scratch.data();
      args.out = out.data();
      if (form == DeltaForm::kChunked) {
        DeltaChunked(pool, args);
      } else {
        DeltaRecurrent(pool, args);
      }
      EXPECT_TRUE(scratch.CanariesIntact());
      const std::vector<float> got = Written(out, live * out_width());
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

  // The recurrence as the contract states it, in double.
  std::vector<double> Want(int64_t position) const {
    std::vector<double> out(static_cast<size_t>(length * out_width()));
    std::vector<double> state(static_cast<size_t>(state_size()), 0.0);
    if (position > 0) std::copy(initial.begin(), initial.end(), state.begin());
    for (int64_t t = 0; t < length; ++t) {
      for (int64_t j = 0; j < h.value_heads; ++j) {
        Step(t, j, state.data() + j * h.dk * h.dv,
             out.data() + t * out_width() + j * h.dv);
      }
    }
    out.insert(out.end(), state.begin(), state.end());
    return out;
  }

  void Step(int64_t t, int64_t j, double* s, double* o) const {
    const float* row = qkv.data() + t * qkv_width;
    const int64_t key_head = j / (h.value_heads / h.key_heads);
    const auto normed = [&](const float* x) {
      double sum = 1e-6;
      for (int64_t i = 0; i < h.dk; ++i) sum += double{x[i]} * double{x[i]};
      std::vector<double> y;
      for (int64_t i = 0; i < h.dk; ++i) y.push_back(x[i] / std::sqrt(sum));
      return y;
    };
    std::vector<double> q = normed(row + key_head * h.dk);
    for (double& x : q) x /= std::sqrt(static_cast<double>(h.dk));
    const std::vector<double> k = normed(row + (h.key_heads + key_head) * h.dk);
    const float* v = row + 2 * h.key_heads * h.dk + j * h.dv;
    const auto at = static_cast<size_t>(t * h.value_heads + j);
    const double beta = SigmoidOf(b[at]);
    const double decay =
        std::exp(-std::exp(double{a_log.row(0)[j]}) *
                 SoftplusOf(double{a[at]} + double{dt_bias.row(0)[j]}));
    for (int64_t c = 0; c < h.dv; ++c) {
      double read = 0;
      for (int64_t r = 0; r < h.dk; ++r) {
        s[r * h.dv + c] *= decay;
        read += s[r * h.dv + c] * k[static_cast<size_t>(r)];
      }
      const double d = beta * (v[c] - read);
      o[c] = 0;
      for (int64_t r = 0; r < h.dk; ++r) {
        s[r * h.dv + c] += k[static_cast<size_t>(r)] * d;
        o[c] += s[r * h.dv + c] * q[static_cast<size_t>(r)];
      }
    }
  }

  Heads h;
  int64_t length;
  int64_t qkv_width;
  std::vector<float> qkv, b, a;
  StoredMatrix a_log, dt_bias;
  std::vector<float> initial;
};

double WorstOfBoth(const Problem& problem, const std::vector<float>& got,
                   const std::vector<double>& want) {
  // Outputs and state have scales of their own. That of an output is the
  // product of the norms of query and value: a query may be nearly orthogonal
  // to the only key, and rounding does not shrink with it.
  float value = 0;
  for (int64_t i = 0; i < problem.length * problem.qkv_width; ++i) {
    if (i % problem.qkv_width < 2 * problem.h.key_heads * problem.h.dk)
      continue;
    value = std::max(value, std::abs(problem.qkv[static_cast<size_t>(i)]));
  }
  const double floor =
      double{value} / std::sqrt(static_cast<double>(problem.h.dk));
  const auto cut = problem.length * problem.out_width();
  const std::vector<float> got_out(got.begin(), got.begin() + cut);
  const std::vector<double> want_out(want.begin(), want.begin() + cut);
  const std::vector<float> got_state(got.begin() + cut, got.end());
  const std::vector<double> want_state(want.begin() + cut, want.end());
  return std::max(WorstError(got_out, want_out, floor),
                  WorstError(got_state, want_state));
}

class DeltaTest : public ::testing::TestWithParam<Regime> {};

TEST_P(DeltaTest, BothFormsAgreeWithDouble) {
  Random random(1);
  double worst_recurrent = 0;
  double worst_chunked = 0;
  for (const Heads& h : kHeads) {
    for (const int64_t length : {1, 2, 3, 63, 64, 65, 130}) {
      if (length * h.dk * h.dv > 1'500'000) continue;
      for (const int64_t position : {0, 5}) {
        const Problem problem(random, h, length, GetParam());
        const std::vector<double> want = problem.Want(position);
        for (const DeltaForm form :
             {DeltaForm::kRecurrent, DeltaForm::kChunked}) {
          const std::vector<float> got = SameEverywhere([&](ThreadPool& pool) {
            return problem.Run(pool, form, 1, position, length);
          });
          double& worst =
              form == DeltaForm::kChunked ? worst_chunked : worst_recurrent;
          worst = std::max(worst, WorstOfBoth(problem, got, want));
        }
      }
    }
  }
  EXPECT_LT(worst_recurrent, 3e-6);
  EXPECT_LT(worst_chunked, 3e-6);
  RecordProperty("recurrent", std::to_string(worst_recurrent * 1e6));
  RecordProperty("chunked", std::to_string(worst_chunked * 1e6));
}

TEST_P(DeltaTest, ChunkedAgreesWithItselfHoweverItIsCut) {
  Random random(2);
  for (const Heads& h : kHeads) {
    if (h.dk > 128) continue;
    const int64_t length = 150;
    const Problem problem(random, h, length, GetParam());
    ThreadPool pool(2);
    for (const int64_t position : {0, 9}) {
      const std::vector<float> whole =
          problem.Run(pool, DeltaForm::kChunked, 0, position, length);
      const std::vector<double> want(whole.begin(), whole.end());
      for (const int64_t piece : {1, 7, 64}) {
        const std::vector<float> got =
            problem.Run(pool, DeltaForm::kChunked, 2, position, piece);
        EXPECT_LT(WorstOfBoth(problem, got, want), 1e-5) << piece;
        // Whole chunks are the chunks of the whole.
        if (piece == 64) {
          EXPECT_EQ(got, whole);
        }
      }
    }
  }
}

TEST_P(DeltaTest, RecurrentGivesTheSameBitsHoweverItIsCut) {
  Random random(3);
  for (const Heads& h : kHeads) {
    if (h.dk > 128) continue;
    const Problem problem(random, h, 20, GetParam());
    ThreadPool pool(2);
    const std::vector<float> whole =
        problem.Run(pool, DeltaForm::kRecurrent, 0, 4, 20);
    EXPECT_EQ(problem.Run(pool, DeltaForm::kRecurrent, 1, 4, 1), whole);
    EXPECT_EQ(problem.Run(pool, DeltaForm::kRecurrent, 2, 4, 7), whole);
  }
}

INSTANTIATE_TEST_SUITE_P(Regimes, DeltaTest,
                         ::testing::Values(Regime::kMild, Regime::kHard));

TEST(DeltaRecurrentTest, RowsOfDifferentSequencesDoNotMeet) {
  Random random(4);
  const Heads h = {1, 2, 24, 40};
  // Three sequences as rows of one problem, interleaved in one call.
  const std::vector<int32_t> slots = {2, 0, 1, 0, 2};
  const std::vector<int32_t> positions = {0, 3, 8, 4, 1};
  const Problem problem(random, h, 5, Regime::kMild);
  std::vector<float> initial;
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    initial.insert(initial.end(), problem.initial.begin(),
                   problem.initial.end());
  }
  const auto run = [&](ThreadPool& pool, const std::vector<size_t>& order) {
    // Row by row in `order`, one call each; or, if empty, all in one.
    std::vector<float> state = initial;
    std::vector<float> all(static_cast<size_t>(5 * problem.out_width()));
    const auto call = [&](const SequenceRows& rows, int64_t at) {
      Guarded<float> out(rows.capacity() * problem.out_width());
      DeltaRuleArgs args = problem.Args(rows, at);
      args.state = state.data();
      args.out = out.data();
      DeltaRecurrent(pool, args);
      const auto got = Written(out, rows.live() * problem.out_width());
      std::copy(got.begin(), got.end(), all.begin() + at * problem.out_width());
    };
    if (order.empty()) call(SequenceRows::Each(slots, positions), 0);
    for (const size_t i : order) {
      call(SequenceRows::Each({slots[i]}, {positions[i]}),
           static_cast<int64_t>(i));
    }
    all.insert(all.end(), state.begin(), state.end());
    return all;
  };
  const std::vector<float> together =
      SameEverywhere([&](ThreadPool& pool) { return run(pool, {}); });
  ThreadPool pool(1);
  EXPECT_EQ(run(pool, {1, 3, 2, 0, 4}), together);
}

TEST(DeltaRuleTest, NoLiveRowTouchesNothing) {
  Random random(5);
  const Problem problem(random, kHeads[0], 1, Regime::kMild);
  const SequenceRows rows = SequenceRows::One(0, 0, 0);
  Guarded<float> state(problem.state_size()), out(8);
  DeltaRuleArgs args = problem.Args(rows, 0);
  args.state = state.data();
  args.out = out.data();
  ThreadPool pool(2);
  DeltaRecurrent(pool, args);
  DeltaChunked(pool, args);
  Written(state, 0);
  Written(out, 0);
}

}  // namespace
}  // namespace signet::backend::cpu
