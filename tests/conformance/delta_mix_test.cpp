#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/conformance/delta_testing.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

struct Shape {
  int64_t key_heads;
  int64_t value_heads;
  int64_t dim;
  int64_t taps;
  int64_t channels() const { return (2 * key_heads + value_heads) * dim; }
  int64_t width() const { return value_heads * dim; }
  int64_t conv_state() const { return channels() * (taps - 1); }
  int64_t delta_state() const { return value_heads * dim * dim; }
};

class GpuDeltaMixTest : public GpuKernelTest {
 protected:
  struct Result {
    std::vector<float> out;
    std::vector<float> conv_states;
    std::vector<float> delta_states;
    bool operator==(const Result& other) const {
      return SameBits(out, other.out) &&
             SameBits(conv_states, other.conv_states) &&
             SameBits(delta_states, other.delta_states);
    }
  };

  void MakeWeights(const Shape& s, DType dtype) {
    conv_weight_ =
        std::make_unique<Weights>(random_, dtype, s.channels(), s.taps);
    a_log_ = std::make_unique<Weights>(random_, dtype, 1, s.value_heads);
    dt_bias_ = std::make_unique<Weights>(random_, dtype, 1, s.value_heads);
    norm_ = std::make_unique<Weights>(random_, dtype, 1, s.dim);
  }

  // Inputs and states of a call.
  struct Inputs {
    std::vector<float> u, b, a, z;
    std::vector<float> conv_states, delta_states;
  };
  Inputs MakeInputs(const Shape& s, const CallRows& rows, int64_t slots) {
    Inputs inputs = {RandomFloats(random_, rows.live() * s.channels()),
                     RandomFloats(random_, rows.live() * s.value_heads),
                     RandomFloats(random_, rows.live() * s.value_heads),
                     RandomFloats(random_, rows.live() * s.width()),
                     RandomStates(random_, slots, s.conv_state(), rows),
                     RandomStates(random_, slots, s.delta_state(), rows)};
    for (float& value : inputs.u) value *= 20;
    return inputs;
  }

  Result Run(const Shape& s, CallRows& rows, const Inputs& inputs, bool fused) {
    DeviceArray<float> u(rows.capacity() * s.channels());
    DeviceArray<float> qkv(rows.capacity() * s.channels());
    DeviceArray<float> b(rows.capacity() * s.value_heads);
    DeviceArray<float> a(rows.capacity() * s.value_heads);
    DeviceArray<float> z(rows.capacity() * s.width());
    DeviceArray<float> o(rows.capacity() * s.width());
    DeviceArray<float> out(rows.capacity() * s.width());
    DeviceArray<float> conv_states(inputs.conv_states);
    DeviceArray<float> delta_states(inputs.delta_states);
    u.Set(inputs.u);
    b.Set(inputs.b);
    a.Set(inputs.a);
    z.Set(inputs.z);
    const DeltaMixArgs args = {.conv = {.rows = rows.device(),
                                        .form = RowForm::kSequenceEach,
                                        .u = u.data(),
                                        .weight = conv_weight_->device(),
                                        .state = conv_states.data(),
                                        .out = qkv.data()},
                               .delta = {.rows = rows.device(),
                                         .form = DeltaForm::kRecurrent,
                                         .key_heads = s.key_heads,
                                         .value_heads = s.value_heads,
                                         .key_dim = s.dim,
                                         .value_dim = s.dim,
                                         .qkv = qkv.data(),
                                         .b = b.data(),
                                         .a = a.data(),
                                         .a_log = a_log_->device_vector(),
                                         .dt_bias = dt_bias_->device_vector(),
                                         .state = delta_states.data(),
                                         .out = o.data()},
                               .norm = {.rows = rows.device(),
                                        .heads = s.value_heads,
                                        .head_dim = s.dim,
                                        .o = o.data(),
                                        .z = z.data(),
                                        .weight = norm_->device_vector(),
                                        .out = out.data()}};
    if (fused) {
      kernels().DeltaMix(KernelBench::Launch(), args);
    } else {
      kernels().Conv(KernelBench::Launch(), args.conv);
      kernels().DeltaRule(KernelBench::Launch(), args.delta);
      kernels().GatedNorm(KernelBench::Launch(), args.norm);
    }
    Finish();
    EXPECT_TRUE(conv_states.CanariesIntact());
    EXPECT_TRUE(delta_states.CanariesIntact());
    return {Written(out, rows.live() * s.width()), conv_states.Get(),
            delta_states.Get()};
  }

  void Compare(const Shape& s, CallRows& rows, int64_t slots) {
    SCOPED_TRACE(::testing::Message()
                 << s.key_heads << " " << s.value_heads << " " << s.dim << " "
                 << s.taps << ", rows " << rows.live());
    const Inputs inputs = MakeInputs(s, rows, slots);
    const Result want = Run(s, rows, inputs, false);
    const Result got = Run(s, rows, inputs, true);
    EXPECT_TRUE(SameBits(got.out, want.out));
    EXPECT_TRUE(SameBits(got.conv_states, want.conv_states));
    EXPECT_TRUE(SameBits(got.delta_states, want.delta_states));
    EXPECT_TRUE(Run(s, rows, inputs, true) == got);
  }

  Random random_{4};
  std::unique_ptr<Weights> conv_weight_, a_log_, dt_bias_, norm_;
};

TEST_F(GpuDeltaMixTest, GivesTheBitsOfItsSteps) {
  for (const Shape& s :
       {Shape{2, 2, 128, 4}, Shape{2, 4, 128, 4}, Shape{1, 3, 128, 4},
        Shape{2, 8, 128, 4}, Shape{1, 5, 128, 4}, Shape{2, 4, 128, 3},
        Shape{1, 2, 44, 4}, Shape{1, 1, 16, 2}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      MakeWeights(s, dtype);
      CallRows few({3, 0, 4}, {0, 9, 1}, 5);
      Compare(s, few, 6);
      CallRows one({1}, {7}, 1);
      Compare(s, one, 2);
      CallRows none({}, {}, 2);
      Compare(s, none, 2);
    }
  }
}

TEST_F(GpuDeltaMixTest, FlagshipGivesTheBitsOfItsSteps) {
  for (const int64_t value_heads : {32, 48}) {
    const Shape s = {16, value_heads, 128, 4};
    MakeWeights(s, DType::kBF16);
    for (const int32_t live : {1, 20}) {
      std::vector<int32_t> slots, positions;
      for (int32_t i = 0; i < live; ++i) {
        slots.push_back(live - i);
        positions.push_back(i % 4);
      }
      CallRows rows(slots, positions, 20);
      Compare(s, rows, live + 1);
    }
  }
}

// Decoding a sequence token by token: the state a launch leaves is the one the
// next finds.
TEST_F(GpuDeltaMixTest, SequencesGoOn) {
  const Shape s = {2, 4, 128, 4};
  MakeWeights(s, DType::kBF16);
  std::unique_ptr<Inputs> fused, apart;
  for (int32_t t = 0; t < 6; ++t) {
    CallRows rows({2, 0}, {t, t + 3}, 2);
    Inputs inputs = MakeInputs(s, rows, 3);
    if (fused == nullptr) {
      fused = std::make_unique<Inputs>(inputs);
      apart = std::make_unique<Inputs>(inputs);
    }
    const auto step = [&](Inputs& states, bool together) {
      inputs.conv_states = states.conv_states;
      inputs.delta_states = states.delta_states;
      Result result = Run(s, rows, inputs, together);
      states.conv_states = result.conv_states;
      states.delta_states = result.delta_states;
      return result;
    };
    EXPECT_TRUE(step(*fused, true) == step(*apart, false)) << t;
  }
}

}  // namespace
}  // namespace signet::backend::gpu
