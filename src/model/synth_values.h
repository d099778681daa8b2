#pragma once
// The numbers of a synthetic checkpoint. Element i of a tensor is a function
// of (seed, tensor, i) alone. A Gaussian is the sum of the eight 16-bit halves
// of one Philox block, centred and scaled: a whole number, one multiplication,
// one addition, one rounding to BF16. No library function of a machine takes
// part, so the bytes are the same everywhere. Pure functions; any thread.

#include <cstdint>
#include <span>
#include <string_view>

namespace signet::model {

enum class Spread {
  kGaussian,    // mean + scale * N(0, 1)
  kHalfBelow,   // mean - scale * |N(0, 1)|
  kLogUniform,  // log of uniform in [mean, mean + scale]
};

struct ValueRecipe {
  Spread spread;
  double mean;
  double scale;
};

/// One tensor's sequence of numbers.
struct ValueStream {
  ValueStream(uint64_t seed_value, std::string_view tensor_name);
  uint64_t seed;
  uint64_t name_hash;
};

/// Elements `first` ... of the stream as BF16 bits.
void FillBf16(const ValueStream& stream, const ValueRecipe& recipe,
              uint64_t first, std::span<uint16_t> out);

/// Natural logarithm to 1e-15, for positive finite x, from +, *, / alone.
double PortableLog(double x);

}  // namespace signet::model
