#include "model/synth_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "model/philox.h"

namespace signet::model {
namespace {

float FromBf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Known answers of the Random123 distribution (kat_vectors).
TEST(Philox, GivesThePublishedNumbers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                   {0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                   {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(SynthValues, AnElementDependsOnItsIndexAlone) {
  const ValueStream stream(7, "norm.weight");
  const ValueRecipe recipe{Spread::kGaussian, 0.0, 1.0};
  std::vector<uint16_t> whole(100);
  FillBf16(stream, recipe, 0, whole);
  for (uint64_t first : {1u, 31u, 32u, 37u}) {
    std::vector<uint16_t> part(100 - first);
    FillBf16(stream, recipe, first, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(),
                           whole.begin() + static_cast<int64_t>(first)));
  }
  std::vector<uint16_t> other(100);
  FillBf16(ValueStream(8, "norm.weight"), recipe, 0, other);
  EXPECT_NE(other, whole);
  FillBf16(ValueStream(7, "norm.bias"), recipe, 0, other);
  EXPECT_NE(other, whole);
  // The upper half of the index counts.
  FillBf16(stream, recipe, uint64_t{1} << 32, other);
  EXPECT_NE(other, whole);
}

// Fixed bits, computed apart in Python: another machine or compiler must give
// the same.
TEST(SynthValues, BitsAreFixed) {
  std::vector<uint16_t> values(6);
  FillBf16(ValueStream(1, "embed_tokens.weight"), {Spread::kGaussian, 0.0, 1.0},
           0, values);
  EXPECT_EQ(values,
            (std::vector<uint16_t>{16080, 16276, 49030, 49034, 48983, 15820}));
  FillBf16(ValueStream(1, "layers.0.linear_attn.A_log"),
           {Spread::kLogUniform, 0.01, 15.99}, 0, values);
  EXPECT_EQ(values,
            (std::vector<uint16_t>{16319, 16394, 16334, 16397, 16327, 16389}));
}

// Also computed apart. The factor is 2^-10 here, so that some values lie
// halfway between two BF16 numbers and go to the even one.
TEST(SynthValues, RoundsTiesToEven) {
  std::vector<uint16_t> values(4096);
  FillBf16(ValueStream(1, "embed_tokens.weight"),
           {Spread::kGaussian, 0.0, 53509.91992145008 / 1024}, 0, values);
  uint64_t sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += (i + 1) * values[i];
  EXPECT_EQ(sum, 277149878240u);
}

TEST(SynthValues, GaussiansHaveTheirMoments) {
  std::vector<uint16_t> values(1 << 18);
  FillBf16(ValueStream(3, "x"), {Spread::kGaussian, 1.0, 0.2}, 0, values);
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  for (const uint16_t value : values) {
    const double x = (FromBf16(value) - 1.0) / 0.2;
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  const double n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0.0, 0.02);
  EXPECT_NEAR(squares / n, 1.0, 0.02);
  // A sum of eight uniforms has kurtosis 3 - 6/5/8.
  EXPECT_NEAR(fourth / n, 2.85, 0.06);
}

TEST(SynthValues, SpreadsKeepTheirRange) {
  std::vector<uint16_t> values(1 << 14);
  FillBf16(ValueStream(3, "A_log"), {Spread::kLogUniform, 0.01, 15.99}, 0,
           values);
  double mean = 0;
  for (const uint16_t value : values) {
    EXPECT_GE(FromBf16(value), std::log(0.01) - 0.02);
    EXPECT_LE(FromBf16(value), std::log(16.0) + 0.02);
    mean += std::exp(FromBf16(value)) / static_cast<double>(values.size());
  }
  EXPECT_NEAR(mean, 8.0, 0.2);
  FillBf16(ValueStream(3, "dt_bias"), {Spread::kHalfBelow, 1.0, 4.0}, 0,
           values);
  int num_below = 0;
  for (const uint16_t value : values) {
    EXPECT_LE(FromBf16(value), 1.0f);
    num_below += FromBf16(value) < 1.0f - 4.0f;
  }
  EXPECT_NEAR(num_below / static_cast<double>(values.size()), 0.317, 0.03);
}

TEST(SynthValues, PortableLogIsALogarithm) {
  for (double x = 1e-3; x < 1e3; x *= 1.0173) {
    EXPECT_NEAR(PortableLog(x), std::log(x),
                2e-15 * (1 + std::fabs(std::log(x))));
  }
  EXPECT_EQ(PortableLog(1.0), 0.0);
}

}  // namespace
}  // namespace signet::model
