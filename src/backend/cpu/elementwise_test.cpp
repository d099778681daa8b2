#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/cpu/kernel_testing.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/sequence_testing.h"

namespace signet::backend::cpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

struct Case {
  int64_t live;
  int64_t width;
};
constexpr Case kCases[] = {{0, 5}, {1, 1}, {1, 4099}, {3, 24}, {65, 130}};

std::vector<float> Scaled(Random& random, int64_t count, float factor) {
  std::vector<float> values = RandomFloats(random, count);
  for (float& value : values) value *= factor;
  return values;
}

TEST(ElementwiseTest, ActivationOverSlotsAndInPlace) {
  Random random(1);
  for (const auto [live, width] : kCases) {
    for (const int64_t multiple : {1, 8}) {
      const int64_t count = live * multiple * width;
      const std::vector<float> gate = Scaled(random, count, 30);
      const std::vector<float> up = Scaled(random, count, 2);
      const LiveRows rows(live, live + 3);
      const auto args = [&](const float* in, float* out) {
        return ActivationArgs{.rows = rows.view(),
                              .multiple = multiple,
                              .width = width,
                              .gate = in,
                              .up = up.data(),
                              .out = out};
      };
      const std::vector<float> got = SameEverywhere([&](ThreadPool& pool) {
        Guarded<float> out((live + 3) * multiple * width);
        Activation(pool, args(gate.data(), out.data()));
        return Written(out, count);
      });
      std::vector<double> want;
      for (size_t i = 0; i < got.size(); ++i) {
        want.push_back(SiluOf(gate[i]) * up[i]);
      }
      EXPECT_LT(WorstError(got, want), 1e-6);
      std::vector<float> in_place = gate;
      ThreadPool pool(2);
      Activation(pool, args(in_place.data(), in_place.data()));
      EXPECT_EQ(in_place, got);
    }
  }
}

TEST(ElementwiseTest, ResidualAddIsExactAndInPlace) {
  Random random(2);
  for (const auto [live, width] : kCases) {
    const int64_t count = live * width;
    const std::vector<float> a = Scaled(random, count, 1);
    const std::vector<float> b = Scaled(random, count, 1e-3f);
    const LiveRows rows(live, live + 3);
    const std::vector<float> got = SameEverywhere([&](ThreadPool& pool) {
      Guarded<float> out((live + 3) * width);
      ResidualAdd(pool, {rows.view(), width, a.data(), b.data(), out.data()});
      return Written(out, count);
    });
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], a[i] + b[i]);
    std::vector<float> in_place = a;
    ThreadPool pool(2);
    ResidualAdd(
        pool, {rows.view(), width, in_place.data(), b.data(), in_place.data()});
    EXPECT_EQ(in_place, got);
  }
}

TEST(ElementwiseTest, GatedAddIsOneFusedMultiplyAdd) {
  Random random(3);
  for (const auto [live, width] : kCases) {
    const int64_t count = live * width;
    const std::vector<float> addend = Scaled(random, count, 1);
    const std::vector<float> x = Scaled(random, count, 3);
    const std::vector<float> gate = Scaled(random, live, 9);
    const LiveRows rows(live, live + 3);
    const auto args = [&](const float* in, float* out) {
      return GatedAddArgs{rows.view(), width, in, gate.data(), x.data(), out};
    };
    const std::vector<float> got = SameEverywhere([&](ThreadPool& pool) {
      Guarded<float> out((live + 3) * width);
      GatedAdd(pool, args(addend.data(), out.data()));
      return Written(out, count);
    });
    std::vector<double> want;
    for (size_t i = 0; i < got.size(); ++i) {
      const double g = SigmoidOf(gate[i / static_cast<size_t>(width)]);
      want.push_back(addend[i] + g * x[i]);
    }
    EXPECT_LT(WorstError(got, want), 3e-7);
    std::vector<float> in_place = addend;
    ThreadPool pool(2);
    GatedAdd(pool, args(in_place.data(), in_place.data()));
    EXPECT_EQ(in_place, got);
  }
  // The addend cancels the rounded product: what a fused one keeps is left.
  ThreadPool pool(1);
  const LiveRows rows(1, 1);
  const auto run = [&](float addend, float x) {
    const float gate = 0.3f;
    float out = 0;
    GatedAdd(pool, {rows.view(), 1, &addend, &gate, &x, &out});
    return out;
  };
  const float sigmoid = run(0.0f, 1.0f);
  const float x = 1.2345678f;
  const float left = run(-(sigmoid * x), x);
  EXPECT_EQ(left, std::fma(sigmoid, x, -(sigmoid * x)));
  EXPECT_NE(left, 0.0f);
}

TEST(ElementwiseTest, IdentityReduceCopiesLiveRows) {
  Random random(4);
  for (const auto [live, width] : kCases) {
    const std::vector<float> x = Scaled(random, live * width, 1);
    const LiveRows rows(live, live + 3);
    const std::vector<float> got = SameEverywhere([&](ThreadPool& pool) {
      Guarded<float> out((live + 3) * width);
      IdentityReduce(pool, {rows.view(), width, x.data(), out.data()});
      return Written(out, live * width);
    });
    EXPECT_EQ(got, x);
  }
}

}  // namespace
}  // namespace signet::backend::cpu
