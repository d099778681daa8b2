#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "backend/cpu/math-inl.h"

// One instruction set, the baseline; the kernels' own tests run all of them.
HWY_BEFORE_NAMESPACE();
namespace signet::backend::cpu {
namespace HWY_NAMESPACE {

// Distance from the double `want` in units of the last place of the float.
double Ulps(float got, double want) {
  const float rounded = static_cast<float>(want);
  const double ulp =
      static_cast<double>(std::nextafter(
          std::fabs(rounded), std::numeric_limits<float>::infinity())) -
      std::fabs(static_cast<double>(rounded));
  return std::fabs(static_cast<double>(got) - want) / ulp;
}

TEST(Math, ExpIsAccurate) {
  double worst = 0;
  for (double x = -87.3; x < 88.7; x += 0.000913) {
    const float xf = static_cast<float>(x);
    worst = std::max(worst, Ulps(Exp1(xf), std::exp(double{xf})));
  }
  EXPECT_LT(worst, 1.5);
  RecordProperty("ulps", std::to_string(worst));
}

TEST(Math, ExpOfExtremes) {
  EXPECT_EQ(Exp1(0.0f), 1.0f);
  EXPECT_EQ(Exp1(-0.0f), 1.0f);
  for (const float x : {-104.5f, -300.0f, -3e4f, -1e30f, -INFINITY}) {
    EXPECT_EQ(Exp1(x), 0.0f) << x;
  }
  for (const float x : {89.0f, 300.0f, 1e30f, INFINITY}) {
    EXPECT_EQ(Exp1(x), INFINITY) << x;
  }
  EXPECT_TRUE(std::isnan(Exp1(NAN)));
  for (float x = -104.0f; x < -87.0f; x += 0.01f) {
    EXPECT_NEAR(Exp1(x), std::exp(double{x}), 1.5e-45) << x;
  }
}

TEST(Math, SigmoidAndSilu) {
  double worst = 0;
  for (double x = -80; x < 80; x += 0.00137) {
    const float xf = static_cast<float>(x);
    const double sigmoid = 1 / (1 + std::exp(-double{xf}));
    worst = std::max(worst, Ulps(Sigmoid1(xf), sigmoid));
    worst = std::max(worst, Ulps(Silu1(xf), xf * sigmoid));
  }
  EXPECT_LT(worst, 3);
  EXPECT_EQ(Sigmoid1(-300.0f), 0.0f);
  EXPECT_EQ(Sigmoid1(300.0f), 1.0f);
  EXPECT_EQ(Silu1(-300.0f), 0.0f);
  EXPECT_EQ(Silu1(300.0f), 300.0f);
  EXPECT_TRUE(std::isnan(Sigmoid1(NAN)));
}

TEST(Math, Softplus) {
  double worst = 0;
  for (double x = -85; x < 60; x += 0.00171) {
    const float xf = static_cast<float>(x);
    worst =
        std::max(worst, Ulps(Softplus1(xf), std::log1p(std::exp(double{xf}))));
  }
  EXPECT_LT(worst, 3);
  for (const float x : {20.00001f, 25.0f, 300.0f, 1e30f}) {
    EXPECT_EQ(Softplus1(x), x);
  }
  EXPECT_EQ(Softplus1(-300.0f), 0.0f);
}

TEST(Math, InvSqrt) {
  double worst = 0;
  for (float x = 1e-6f; x < 1e6f; x *= 1.0013f) {
    worst = std::max(worst, Ulps(InvSqrt1(x), 1 / std::sqrt(double{x})));
  }
  EXPECT_LT(worst, 1.5);
}

TEST(Math, SinCosOfLargeAngles) {
  std::mt19937 rng(7);
  double worst = 0;
  for (const double span : {1.0, 100.0, 5e3, 2.7e5, 1e6}) {
    std::uniform_real_distribution<float> angles(-static_cast<float>(span),
                                                 static_cast<float>(span));
    for (int i = 0; i < 20000; ++i) {
      const float x = angles(rng);
      const SinCosPair got = SinCos(x);
      // Half a unit of the last place is the rounding to f32.
      worst = std::max(worst, std::fabs(got.sin - std::sin(double{x})));
      worst = std::max(worst, std::fabs(got.cos - std::cos(double{x})));
    }
  }
  EXPECT_LT(worst, 0x1p-25 + 1e-9);
  EXPECT_EQ(SinCos(0.0f).sin, 0.0f);
  EXPECT_EQ(SinCos(0.0f).cos, 1.0f);
}

TEST(Math, VectorLanesEqualTheScalarForm) {
  std::mt19937 rng(11);
  std::normal_distribution<float> normal(0.0f, 20.0f);
  std::vector<float> x(37), out(37 + 1, -7.0f);
  for (float& value : x) value = normal(rng);
  const hn::CappedTag<float, 16> d;
  ForVectors(x.size(), [&](size_t i, const auto& load, const auto& store) {
    store(Silu(d, load(x.data())), out.data());
    EXPECT_EQ(i % hn::Lanes(d), 0u);
  });
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(out[i], Silu1(x[i]));
  EXPECT_EQ(out.back(), -7.0f);
}

// The order written out: sixteen lanes, then halves.
float SumInOrder(const std::vector<float>& x, bool squares) {
  float lanes[16] = {};
  for (size_t i = 0; i < x.size(); ++i) {
    lanes[i % 16] =
        squares ? std::fma(x[i], x[i], lanes[i % 16]) : lanes[i % 16] + x[i];
  }
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

TEST(Math, SumsHaveTheOneOrder) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0.0f, 100.0f);
  for (const size_t n : {1u, 7u, 8u, 9u, 16u, 17u, 24u, 31u, 64u, 130u, 257u}) {
    std::vector<float> x(n);
    for (float& value : x) value = normal(rng);
    EXPECT_EQ(Sum(x.data(), n), SumInOrder(x, false)) << n;
    EXPECT_EQ(SumSquares(x.data(), n), SumInOrder(x, true)) << n;
    EXPECT_EQ(Dot(x.data(), x.data(), n), SumInOrder(x, true)) << n;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace signet::backend::cpu
HWY_AFTER_NAMESPACE();
