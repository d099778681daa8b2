#include "model/synth_values.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "model/philox.h"

namespace signet::model {
namespace {

// Enough that compilers keep the loops over lanes and make vectors of them.
constexpr int kLanes = 32;
using Lanes = PhiloxLanes<kLanes>;

/// Mean and standard deviation of the sum of eight uniform 16-bit numbers:
/// 8 * 65535 / 2, and the root of 8 * (65536^2 - 1) / 12.
constexpr int32_t kSumMean = 262140;
constexpr double kSumDeviation = 53509.91992145008;

uint64_t Fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

Lanes BlocksAt(const ValueStream& stream, uint64_t first) {
  Lanes lanes;
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t index = first + static_cast<uint64_t>(i);
    lanes.words[0][i] = static_cast<uint32_t>(index);
    lanes.words[1][i] = static_cast<uint32_t>(index >> 32);
    lanes.words[2][i] = static_cast<uint32_t>(stream.name_hash);
    lanes.words[3][i] = static_cast<uint32_t>(stream.name_hash >> 32);
  }
  lanes.Encrypt({static_cast<uint32_t>(stream.seed),
                 static_cast<uint32_t>(stream.seed >> 32)});
  return lanes;
}

/// The centred sum of lane i, about kSumDeviation * N(0, 1).
int32_t CentredSum(const Lanes& lanes, int i) {
  uint32_t sum = 0;
  for (int w = 0; w < 4; ++w) {
    sum += (lanes.words[w][i] & 0xffff) + (lanes.words[w][i] >> 16);
  }
  return static_cast<int32_t>(sum) - kSumMean;
}

/// To nearest, ties to even; the recipes make no NaN.
uint16_t ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

ValueStream::ValueStream(uint64_t seed_value, std::string_view tensor_name)
    : seed(seed_value), name_hash(Fnv1a(tensor_name)) {}

double PortableLog(double x) {
  constexpr double kLog2 = 0.693147180559945309417;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m =
      std::bit_cast<double>((bits & 0x000fffffffffffff) | 0x3ff0000000000000);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  // log m = 2 artanh t = 2 (t + t^3/3 + t^5/5 + ...), |t| <= 0.172.
  const double t = (m - 1.0) / (m + 1.0);
  const double square = t * t;
  double sum = 0.0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return exponent * kLog2 + 2.0 * t * sum;
}

void FillBf16(const ValueStream& stream, const ValueRecipe& recipe,
              uint64_t first, std::span<uint16_t> out) {
  const float mean = static_cast<float>(recipe.mean);
  const float factor = static_cast<float>(recipe.scale / kSumDeviation);
  for (size_t done = 0; done < out.size(); done += kLanes) {
    const Lanes lanes = BlocksAt(stream, first + done);
    uint16_t values[kLanes];
    switch (recipe.spread) {
      case Spread::kGaussian:
        for (int i = 0; i < kLanes; ++i) {
          const float sum = static_cast<float>(CentredSum(lanes, i));
          values[i] = ToBf16(mean + sum * factor);
        }
        break;
      case Spread::kHalfBelow:
        for (int i = 0; i < kLanes; ++i) {
          const float sum = static_cast<float>(CentredSum(lanes, i));
          values[i] = ToBf16(mean - std::fabs(sum) * factor);
        }
        break;
      case Spread::kLogUniform:
        for (int i = 0; i < kLanes; ++i) {
          const double unit = (lanes.words[0][i] + 0.5) * 0x1p-32;
          values[i] = ToBf16(static_cast<float>(
              PortableLog(recipe.mean + recipe.scale * unit)));
        }
        break;
    }
    const size_t count = std::min<size_t>(kLanes, out.size() - done);
    std::copy_n(values, count, out.data() + done);
  }
}

}  // namespace signet::model
