#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/conformance/delta_testing.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

struct Heads {
  int64_t key_heads;
  int64_t value_heads;
  int64_t dk;
  int64_t dv;
  int64_t qkv_width() const { return 2 * key_heads * dk + value_heads * dv; }
  int64_t out_width() const { return value_heads * dv; }
  int64_t state_size() const { return value_heads * dk * dv; }
};

constexpr Heads kOddHeads[] = {
    {1, 1, 8, 8},     {1, 1, 24, 32},   {2, 4, 32, 24},  {1, 3, 17, 19},
    {1, 2, 64, 128},  {2, 2, 128, 64},  {1, 1, 128, 44}, {2, 4, 128, 128},
    {1, 1, 256, 256}, {1, 2, 300, 130}, {1, 1, 512, 512}};
constexpr Heads kFlagship = {16, 32, 128, 128};

// Inputs of `length` rows. Hard: decays from 1 to e^-300 side by side, beta
// near 1, keys that repeat, large values.
struct Inputs {
  Inputs(Random& random, const Heads& h, int64_t length, bool hard)
      : qkv(RandomFloats(random, length * h.qkv_width())),
        b(RandomFloats(random, length * h.value_heads)),
        a(RandomFloats(random, length * h.value_heads)) {
    if (!hard) {
      for (float& value : a) value -= 2;
      return;
    }
    for (float& value : a) {
      const uint32_t kind = random() % 4;
      value = kind == 0 ? 300.0f : kind == 1 ? -20.0f : value * 4;
    }
    for (float& value : b) value = 6 + 3 * value;
    const int64_t keys = h.key_heads * h.dk;
    for (int64_t t = 0; t < length; ++t) {
      float* row = qkv.data() + t * h.qkv_width();
      if (t % 3 != 0) {
        std::copy_n(row + keys - h.qkv_width(), keys, row + keys);
      }
      for (int64_t i = 2 * keys; i < h.qkv_width(); ++i) row[i] *= 25;
    }
  }
  // Rows [first, first + count).
  Inputs Cut(const Heads& h, int64_t first, int64_t count) const {
    const auto cut = [&](const std::vector<float>& from, int64_t width) {
      return std::vector<float>(from.begin() + first * width,
                                from.begin() + (first + count) * width);
    };
    return {cut(qkv, h.qkv_width()), cut(b, h.value_heads),
            cut(a, h.value_heads)};
  }
  Inputs(std::vector<float> qkv, std::vector<float> b, std::vector<float> a)
      : qkv(std::move(qkv)), b(std::move(b)), a(std::move(a)) {}

  std::vector<float> qkv, b, a;
};

class GpuDeltaTest : public GpuKernelTest {
 protected:
  struct Result {
    std::vector<float> out;
    std::vector<float> states;
  };

  static DeltaRuleArgs Args(const Heads& h, DeltaForm form) {
    return {.form = form,
            .key_heads = h.key_heads,
            .value_heads = h.value_heads,
            .key_dim = h.dk,
            .value_dim = h.dv};
  }

  Result Run(const Heads& h, DeltaForm form, CallRows& rows,
             const Inputs& inputs, const std::vector<float>& states) {
    DeviceArray<float> qkv(rows.capacity() * h.qkv_width());
    DeviceArray<float> b(rows.capacity() * h.value_heads);
    DeviceArray<float> a(rows.capacity() * h.value_heads);
    DeviceArray<float> out(rows.capacity() * h.out_width());
    DeviceArray<float> state(states);
    qkv.Set(inputs.qkv);
    b.Set(inputs.b);
    a.Set(inputs.a);
    DeltaRuleArgs args = Args(h, form);
    args.rows = rows.device();
    args.qkv = qkv.data();
    args.b = b.data();
    args.a = a.data();
    args.a_log = a_log_->device_vector();
    args.dt_bias = dt_bias_->device_vector();
    args.state = state.data();
    args.out = out.data();
    kernels().DeltaRule(KernelBench::Launch(), args);
    Finish();
    EXPECT_TRUE(state.CanariesIntact());
    return {Written(out, rows.live() * h.out_width()), state.Get()};
  }

  // The recurrent form of the CPU takes rows of one sequence in order, too.
  Result Want(const Heads& h, const CallRows& rows, const Inputs& inputs,
              std::vector<float> states) {
    Result want;
    want.out.resize(static_cast<size_t>(rows.live() * h.out_width()));
    DeltaRuleArgs args = Args(h, DeltaForm::kRecurrent);
    args.rows = rows.host();
    args.qkv = inputs.qkv.data();
    args.b = inputs.b.data();
    args.a = inputs.a.data();
    args.a_log = a_log_->host_vector();
    args.dt_bias = dt_bias_->host_vector();
    args.state = states.data();
    args.out = want.out.data();
    reference_.kernels().DeltaRule(KernelBench::Launch(), args);
    want.states = std::move(states);
    return want;
  }

  void MakeWeights(const Heads& h, DType dtype) {
    a_log_ = std::make_unique<Weights>(random_, dtype, 1, h.value_heads);
    dt_bias_ =
        std::make_unique<Weights>(random_, DType::kF32, 1, h.value_heads);
  }

  void Compare(const Heads& h, DeltaForm form, CallRows& rows, int64_t slots,
               bool hard) {
    SCOPED_TRACE(hard ? "hard" : "easy");
    Compare(h, form, rows, slots, Inputs(random_, h, rows.live(), hard));
  }
  // Sums run in other orders than the CPU's and the output is made from the old
  // state: a few roundings of 6e-8 a token, of values that decay. Products of
  // chunks lose as much: f16 pairs hold 22 bits, and a tensor core cuts sums of
  // 16 products.
  void Compare(const Heads& h, DeltaForm form, CallRows& rows, int64_t slots,
               const Inputs& inputs) {
    SCOPED_TRACE(::testing::Message()
                 << h.key_heads << " " << h.value_heads << " " << h.dk << " "
                 << h.dv << ", rows " << rows.live());
    const std::vector<float> states =
        RandomStates(random_, slots, h.state_size(), rows);
    const Result want = Want(h, rows, inputs, states);
    const Result got = Run(h, form, rows, inputs, states);
    EXPECT_LE(OutputError(h, inputs, got.out, want.out), 2e-6);
    const Rows host = rows.host();
    for (int64_t slot = 0; slot < slots; ++slot) {
      const auto of_slot = [&](const std::vector<float>& all) {
        return std::vector<float>(all.begin() + slot * h.state_size(),
                                  all.begin() + (slot + 1) * h.state_size());
      };
      const bool touched = std::find(host.slot, host.slot + rows.live(),
                                     slot) != host.slot + rows.live();
      if (touched) {
        EXPECT_LT(RelativeError(of_slot(got.states), of_slot(want.states)),
                  2e-6);
      } else {
        EXPECT_TRUE(SameBits(of_slot(got.states), of_slot(states)));
      }
    }
    const Result again = Run(h, form, rows, inputs, states);
    EXPECT_TRUE(SameBits(again.out, got.out));
    EXPECT_TRUE(SameBits(again.states, got.states));
  }

  // ||got - want|| / ||want||, but of no less than what unit queries make of
  // the values: a query may be nearly orthogonal to the only key, and rounding
  // does not shrink with it.
  static double OutputError(const Heads& h, const Inputs& inputs,
                            const std::vector<float>& got,
                            const std::vector<float>& want) {
    double difference = 0;
    double norm = 0;
    double values = 0;
    const int64_t keys = 2 * h.key_heads * h.dk;
    for (size_t i = 0; i < want.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const int64_t column =
          at / h.out_width() * h.qkv_width() + keys + at % h.out_width();
      const double v = inputs.qkv[static_cast<size_t>(column)];
      difference += std::pow(double{got[i]} - double{want[i]}, 2);
      norm += std::pow(want[i], 2);
      values += v * v;
    }
    const double scale =
        std::sqrt(std::max(norm, values / static_cast<double>(h.dk)));
    return want.empty() ? 0 : std::sqrt(difference) / scale;
  }

  Random random_{3};
  Reference reference_;
  std::unique_ptr<Weights> a_log_;
  std::unique_ptr<Weights> dt_bias_;
};

TEST_F(GpuDeltaTest, RecurrentAgreesWithTheCpu) {
  for (const Heads& h : kOddHeads) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      MakeWeights(h, dtype);
      CallRows rows({3, 0, 4}, {0, 9, 1}, 4);
      Compare(h, DeltaForm::kRecurrent, rows, 5, dtype == DType::kF16);
      CallRows none({}, {}, 2);
      Compare(h, DeltaForm::kRecurrent, none, 2, false);
    }
  }
}

TEST_F(GpuDeltaTest, ChunkedAgreesWithTheCpu) {
  for (const Heads& h : kOddHeads) {
    MakeWeights(h, DType::kBF16);
    for (const int64_t live : {0, 1, 2, 15, 16, 17, 33, 100}) {
      if (live * h.state_size() > 5'000'000) continue;
      for (const int64_t position : {0, 5}) {
        const auto rows = CallRows::One(live, 1, position, live + 3);
        Compare(h, DeltaForm::kChunked, *rows, 3, position == 5);
      }
    }
  }
}

TEST_F(GpuDeltaTest, FlagshipAgreesWithTheCpu) {
  MakeWeights(kFlagship, DType::kBF16);
  std::vector<int32_t> slots(17), positions(17);
  std::iota(slots.rbegin(), slots.rend(), 0);
  std::iota(positions.begin(), positions.end(), 0);
  CallRows decode(slots, positions, 32);
  Compare(kFlagship, DeltaForm::kRecurrent, decode, 18, false);
  const auto prefill = CallRows::One(300, 1, 0, 512);
  Compare(kFlagship, DeltaForm::kChunked, *prefill, 2, false);
}

TEST_F(GpuDeltaTest, ChunksOfAnyLengthAgreeWithTheCpu) {
  for (const Heads& h :
       {Heads{1, 2, 128, 32}, Heads{2, 2, 128, 128}, Heads{1, 5, 128, 64}}) {
    MakeWeights(h, DType::kBF16);
    for (const int64_t live : {1, 63, 64, 65, 127, 128, 333}) {
      for (const int64_t position : {0, 64}) {
        const auto rows = CallRows::One(live, 1, position, live + 70);
        Compare(h, DeltaForm::kChunked, *rows, 3, false);
        Compare(h, DeltaForm::kChunked, *rows, 3, true);
      }
    }
  }
}

TEST_F(GpuDeltaTest, LongSequencesAgreeWithTheCpu) {
  constexpr Heads h = {1, 2, 128, 64};
  MakeWeights(h, DType::kBF16);
  constexpr int64_t kLength = 2048 + 5;
  const auto rows = CallRows::One(kLength, 1, 3, kLength + 1000);
  Compare(h, DeltaForm::kChunked, *rows, 3, false);
  Compare(h, DeltaForm::kChunked, *rows, 3, true);
  // Nearly nothing decays and every value replaces another: errors stay.
  Inputs lasting(random_, h, kLength, false);
  for (float& value : lasting.a) value -= 18;
  for (float& value : lasting.b) value += 5;
  Compare(h, DeltaForm::kChunked, *rows, 3, lasting);
}

TEST_F(GpuDeltaTest, ChunksHoldValuesOfAnySize) {
  constexpr Heads h = {1, 2, 128, 64};
  MakeWeights(h, DType::kBF16);
  constexpr int64_t kLength = 130;
  const auto rows = CallRows::One(kLength, 1, 0, kLength);
  for (const float size : {1e-30f, 1e-6f, 1e6f, 1e30f}) {
    Inputs inputs(random_, h, kLength, false);
    for (int64_t i = 0; i < kLength * h.qkv_width(); ++i) {
      if (i % h.qkv_width() < 2 * h.key_heads * h.dk) continue;
      inputs.qkv[static_cast<size_t>(i)] *= size;
    }
    Compare(h, DeltaForm::kChunked, *rows, 2, inputs);
  }
}

TEST_F(GpuDeltaTest, CapacityDoesNotChangeBits) {
  constexpr Heads h = {2, 4, 128, 64};
  MakeWeights(h, DType::kBF16);
  constexpr int64_t kLength = 200;
  const Inputs inputs(random_, h, kLength, true);
  const std::vector<float> states = RandomFloats(random_, 2 * h.state_size());
  const auto run = [&](int64_t capacity) {
    const auto rows = CallRows::One(kLength, 1, 7, capacity);
    return Run(h, DeltaForm::kChunked, *rows, inputs, states);
  };
  const Result exact = run(kLength);
  for (const int64_t capacity : {kLength + 1, int64_t{1024}, int64_t{3000}}) {
    const Result got = run(capacity);
    EXPECT_TRUE(SameBits(got.out, exact.out)) << capacity;
    EXPECT_TRUE(SameBits(got.states, exact.states)) << capacity;
  }
}

// Whole chunks leave what they would leave in one call; elsewhere the sums are
// other ones. Token by token nothing depends on it.
TEST_F(GpuDeltaTest, CutsBetweenChunksDoNotChangeBits) {
  for (const Heads& h : {Heads{2, 4, 128, 128}, Heads{1, 2, 24, 40}}) {
    MakeWeights(h, DType::kBF16);
    constexpr int64_t kLength = 300;
    const Inputs inputs(random_, h, kLength, false);
    const std::vector<float> states = RandomFloats(random_, 2 * h.state_size());
    const auto run = [&](const std::vector<int64_t>& pieces) {
      Result all = {{}, states};
      int64_t at = 0;
      for (const int64_t piece : pieces) {
        const auto rows = CallRows::One(piece, 1, 5 + at, piece + 1);
        Result got = Run(h, DeltaForm::kChunked, *rows,
                         inputs.Cut(h, at, piece), all.states);
        all.out.insert(all.out.end(), got.out.begin(), got.out.end());
        all.states = std::move(got.states);
        at += piece;
      }
      EXPECT_EQ(at, kLength);
      return all;
    };
    const Result whole = run({kLength});
    for (const std::vector<int64_t>& pieces :
         {std::vector<int64_t>{64, 236}, {128, 64, 108}, {256, 44}}) {
      const Result cut = run(pieces);
      EXPECT_TRUE(SameBits(cut.out, whole.out)) << pieces[0];
      EXPECT_TRUE(SameBits(cut.states, whole.states)) << pieces[0];
    }
    for (const std::vector<int64_t>& pieces :
         {std::vector<int64_t>{1, 16, 17, 266}, {63, 2, 235}, {299, 1}}) {
      const Result cut = run(pieces);
      if (h.dk == 128) {
        EXPECT_LT(RelativeError(cut.out, whole.out), 2e-6) << pieces[0];
        EXPECT_LT(RelativeError(cut.states, whole.states), 2e-6) << pieces[0];
      } else {
        EXPECT_TRUE(SameBits(cut.out, whole.out)) << pieces[0];
        EXPECT_TRUE(SameBits(cut.states, whole.states)) << pieces[0];
      }
    }
  }
}

TEST_F(GpuDeltaTest, RecurrentBitsDoNotDependOnTheOtherRows) {
  for (const Heads& h : {Heads{2, 4, 128, 128}, Heads{1, 3, 17, 19}}) {
    MakeWeights(h, DType::kBF16);
    constexpr int64_t kRows = 5;
    const Inputs inputs(random_, h, kRows, false);
    const std::vector<float> states =
        RandomFloats(random_, kRows * h.state_size());
    CallRows together({4, 1, 3, 0, 2}, {7, 1, 0, 30, 2}, kRows + 3);
    const Result all = Run(h, DeltaForm::kRecurrent, together, inputs, states);
    for (int64_t row = 0; row < kRows; ++row) {
      const int32_t slot = together.host().slot[row];
      CallRows alone({slot}, {together.host().position[row]}, 1);
      const Result one =
          Run(h, DeltaForm::kRecurrent, alone, inputs.Cut(h, row, 1), states);
      EXPECT_TRUE(SameBits(
          one.out,
          std::vector<float>(all.out.begin() + row * h.out_width(),
                             all.out.begin() + (row + 1) * h.out_width())));
      const auto of_slot = [&](const std::vector<float>& from) {
        return std::vector<float>(from.begin() + slot * h.state_size(),
                                  from.begin() + (slot + 1) * h.state_size());
      };
      EXPECT_TRUE(SameBits(of_slot(one.states), of_slot(all.states)));
    }
  }
}

}  // namespace
}  // namespace signet::backend::gpu
