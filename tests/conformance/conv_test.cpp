#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/conformance/delta_testing.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

class GpuConvTest : public GpuKernelTest {
 protected:
  struct Result {
    std::vector<float> out;
    std::vector<float> states;
  };
  // `u` holds the live rows.
  Result Run(CallRows& rows, RowForm form, const std::vector<float>& u,
             Weights& weights, const std::vector<float>& states) {
    const int64_t channels = weights.host().rows;
    DeviceArray<float> inputs(rows.capacity() * channels);
    inputs.Set(u);
    DeviceArray<float> state(states);
    DeviceArray<float> out(rows.capacity() * channels);
    kernels().Conv(KernelBench::Launch(), {.rows = rows.device(),
                                           .form = form,
                                           .u = inputs.data(),
                                           .weight = weights.device(),
                                           .state = state.data(),
                                           .out = out.data()});
    Finish();
    EXPECT_TRUE(state.CanariesIntact());
    return {Written(out, rows.live() * channels), state.Get()};
  }
  Result Want(const CallRows& rows, RowForm form, const std::vector<float>& u,
              const Weights& weights, std::vector<float> states) {
    Result want;
    want.out.resize(static_cast<size_t>(rows.live() * weights.host().rows));
    reference_.kernels().Conv(KernelBench::Launch(), {.rows = rows.host(),
                                                      .form = form,
                                                      .u = u.data(),
                                                      .weight = weights.host(),
                                                      .state = states.data(),
                                                      .out = want.out.data()});
    want.states = std::move(states);
    return want;
  }
  // The sum runs over the taps in one order and silu is the same polynomial, so
  // the bits agree.
  void Compare(CallRows& rows, RowForm form, int64_t slots, DType dtype,
               int64_t channels, int64_t taps) {
    Weights weights(random_, dtype, channels, taps);
    std::vector<float> u = RandomFloats(random_, rows.live() * channels);
    for (float& value : u) value *= 20;
    const std::vector<float> states =
        RandomStates(random_, slots, channels * (taps - 1), rows);
    const Result want = Want(rows, form, u, weights, states);
    const Result got = Run(rows, form, u, weights, states);
    EXPECT_TRUE(SameBits(got.out, want.out));
    EXPECT_TRUE(SameBits(got.states, want.states));
  }

  Random random_{1};
  Reference reference_;
};

TEST_F(GpuConvTest, DecodeEqualsTheCpu) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t taps : {2, 3, 4, 7, 16}) {
      for (const int64_t channels : {1, 22, 44, 512, 1030}) {
        SCOPED_TRACE(::testing::Message() << taps << " " << channels);
        CallRows few({3, 0, 4}, {0, 9, 1}, 3);
        Compare(few, RowForm::kSequenceEach, 5, dtype, channels, taps);
        CallRows one({1}, {7}, 4);
        Compare(one, RowForm::kSequenceEach, 2, dtype, channels, taps);
        CallRows none({}, {}, 2);
        Compare(none, RowForm::kSequenceEach, 2, dtype, channels, taps);
      }
    }
  }
}

TEST_F(GpuConvTest, PrefillEqualsTheCpu) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t taps : {2, 4, 16}) {
      for (const int64_t channels : {1, 44, 1030}) {
        for (const int64_t live : {0, 1, 2, 3, 15, 16, 17, 18, 19, 33, 70}) {
          for (const int64_t position : {0, 5}) {
            SCOPED_TRACE(::testing::Message()
                         << taps << " " << channels << " " << live);
            const auto rows = CallRows::One(live, 1, position, live + 20);
            Compare(*rows, RowForm::kOneSequence, 3, dtype, channels, taps);
          }
        }
      }
    }
  }
}

TEST_F(GpuConvTest, FlagshipEqualsTheCpu) {
  std::vector<int32_t> slots, positions;
  for (int32_t i = 0; i < 64; ++i) {
    slots.push_back(63 - i);
    positions.push_back(i % 5);
  }
  CallRows decode(slots, positions, 64);
  Compare(decode, RowForm::kSequenceEach, 64, DType::kBF16, 8192, 4);
  const auto prefill = CallRows::One(500, 1, 3, 512);
  Compare(*prefill, RowForm::kOneSequence, 2, DType::kBF16, 8192, 4);
}

TEST_F(GpuConvTest, BitsDoNotDependOnHowTheSequenceIsCut) {
  const int64_t channels = 264;
  const int64_t length = 70;
  for (const int64_t taps : {3, 4}) {
    Weights weights(random_, DType::kBF16, channels, taps);
    const std::vector<float> u = RandomFloats(random_, length * channels);
    const auto run = [&](RowForm form, int64_t piece) {
      Result all;
      all.states.assign(static_cast<size_t>(2 * channels * (taps - 1)), 1.0f);
      for (int64_t at = 0; at < length; at += piece) {
        const int64_t live = std::min(piece, length - at);
        const auto rows = CallRows::One(live, 1, at, piece);
        const std::vector<float> part(u.begin() + at * channels,
                                      u.begin() + (at + live) * channels);
        Result got = Run(*rows, form, part, weights, all.states);
        all.out.insert(all.out.end(), got.out.begin(), got.out.end());
        all.states = std::move(got.states);
      }
      return all;
    };
    const Result whole = run(RowForm::kOneSequence, length);
    for (const int64_t piece : {1, 2, 7, 64}) {
      const Result cut = run(RowForm::kOneSequence, piece);
      EXPECT_TRUE(SameBits(cut.out, whole.out)) << piece;
      EXPECT_TRUE(SameBits(cut.states, whole.states)) << piece;
    }
    const Result decoded = run(RowForm::kSequenceEach, 1);
    EXPECT_TRUE(SameBits(decoded.out, whole.out));
    EXPECT_TRUE(SameBits(decoded.states, whole.states));
  }
}

}  // namespace
}  // namespace signet::backend::gpu
