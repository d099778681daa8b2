#pragma once
// What kernel tests share: poisoned memory with canaries, stored matrices with
// known values, the dot product of contract N4 as a definition, and a choice of
// instruction set. Only tests include this.

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "backend/cpu/simd_targets.h"
#include "backend/views.h"
#include "hwy/highway.h"
#include "tensor/dtype.h"

namespace signet::backend::cpu::testing {

using Random = std::mt19937;

inline float Uniform(Random& random, float low, float high) {
  return low +
         (high - low) * static_cast<float>(
                            std::uniform_real_distribution<double>()(random));
}

inline std::vector<float> RandomFloats(Random& random, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = Uniform(random, -1.0f, 1.0f);
  return values;
}

/// Memory of `count` T between canaries, poisoned until written.
template <typename T>
class Guarded {
 public:
  explicit Guarded(int64_t count)
      : count_(count),
        memory_(static_cast<size_t>(count) + 2 * kCanaries, Poison()) {}

  T* data() { return memory_.data() + kCanaries; }
  const T* data() const { return memory_.data() + kCanaries; }
  int64_t size() const { return count_; }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }
  std::vector<T> Values() const { return {data(), data() + count_}; }

  bool IsPoison(int64_t i) const { return SameBits(data()[i], Poison()); }
  bool CanariesIntact() const {
    for (size_t i = 0; i < kCanaries; ++i) {
      if (!SameBits(memory_[i], Poison())) return false;
      if (!SameBits(memory_[memory_.size() - 1 - i], Poison())) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kCanaries = 32;
  static T Poison() {
    if constexpr (std::is_floating_point_v<T>) {
      return std::bit_cast<float>(0x7fc0dead);
    } else {
      return static_cast<T>(0x5eadbeef);
    }
  }
  static bool SameBits(const T& a, const T& b) {
    return std::memcmp(&a, &b, sizeof(T)) == 0;
  }
  int64_t count_;
  std::vector<T> memory_;
};

/// Bit for bit; NaNs of equal bits are equal.
inline bool SameBits(const float* a, const float* b, int64_t count) {
  return count == 0 ||
         std::memcmp(a, b, static_cast<size_t>(count) * sizeof(float)) == 0;
}

/// The rows of a call: `live` of `capacity`.
class LiveRows {
 public:
  LiveRows(int64_t live, int64_t capacity)
      : live_(static_cast<int32_t>(live)), capacity_(capacity) {}
  Rows view() const { return {.live = &live_, .capacity = capacity_}; }

 private:
  int32_t live_;
  int64_t capacity_;
};

/// A matrix as stored, of random values that its dtype holds exactly.
class StoredMatrix {
 public:
  StoredMatrix(Random& random, tensor::DType dtype, int64_t rows, int64_t cols)
      : dtype_(dtype), rows_(rows), cols_(cols) {
    const size_t count = static_cast<size_t>(rows * cols);
    values_.resize(count);
    bytes_.resize(count * tensor::SizeOf(dtype));
    for (size_t i = 0; i < count; ++i) {
      const uint32_t bits = RandomBits(random);
      values_[i] = Decode(bits);
      std::memcpy(bytes_.data() + i * tensor::SizeOf(dtype), &bits,
                  tensor::SizeOf(dtype));
    }
  }
  WeightView view() const {
    return {
        .data = bytes_.data(), .dtype = dtype_, .rows = rows_, .cols = cols_};
  }
  const float* row(int64_t i) const { return values_.data() + i * cols_; }
  const void* data() const { return bytes_.data(); }

 private:
  // Magnitudes around 1/16, the odd zero and subnormal among them.
  uint32_t RandomBits(Random& random) const {
    const uint32_t sign = random() % 2;
    const uint32_t kind = random() % 64;
    const uint32_t below = random() % 4;
    switch (dtype_) {
      case tensor::DType::kBF16:
        return sign << 15 | (kind == 0 ? 0 : 121 + below) << 7 | random() % 128;
      case tensor::DType::kF16:
        return sign << 15 | (kind == 0 ? 0 : 9 + below) << 10 | random() % 1024;
      default:
        return sign << 31 | (kind == 0 ? 0 : 121 + below) << 23 |
               random() % (1u << 23);
    }
  }
  float Decode(uint32_t bits) const {
    if (dtype_ == tensor::DType::kBF16) return std::bit_cast<float>(bits << 16);
    if (dtype_ == tensor::DType::kF32) return std::bit_cast<float>(bits);
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const float mantissa = static_cast<float>(bits & 1023);
    const float magnitude = exponent == 0
                                ? std::ldexp(mantissa, -24)
                                : std::ldexp(mantissa + 1024.0f, exponent - 25);
    return (bits >> 15 & 1) != 0 ? -magnitude : magnitude;
  }

  tensor::DType dtype_;
  int64_t rows_;
  int64_t cols_;
  std::vector<float> values_;
  std::vector<unsigned char> bytes_;
};

/// The order of contract N4 as a definition: element k to lane k mod 16, fused
/// in ascending k, lanes added at distance 8, 4, 2, 1; the end is zeros.
inline float DefinedDot(const float* x, const float* w, int64_t count) {
  std::array<float, 16> lanes = {};
  for (int64_t k = 0; k < (count + 15) / 16 * 16; ++k) {
    float& lane = lanes[static_cast<size_t>(k % 16)];
    lane = std::fma(k < count ? x[k] : 0.0f, k < count ? w[k] : 0.0f, lane);
  }
  for (size_t distance = 8; distance > 0; distance /= 2) {
    for (size_t i = 0; i < distance; ++i) lanes[i] += lanes[i + distance];
  }
  return lanes[0];
}

/// The exact dot product and the sum of its terms' magnitudes.
struct ExactDot {
  double value = 0;
  double magnitude = 0;
  ExactDot(const float* x, const float* w, int64_t count) {
    for (int64_t k = 0; k < count; ++k) {
      const double term = static_cast<double>(x[k]) * static_cast<double>(w[k]);
      value += term;
      magnitude += std::abs(term);
    }
  }
  /// What rounding may do to a sum of 16 lanes of count / 16 terms.
  double Bound(int64_t count) const {
    const double roundings = static_cast<double>(count) / 16 + 5;
    return roundings * (std::numeric_limits<float>::epsilon() * magnitude +
                        std::numeric_limits<float>::denorm_min());
  }
};

/// Runs the kernels on one instruction set while it lives.
class OnTarget {
 public:
  explicit OnTarget(int64_t target) { hwy::SetSupportedTargetsForTest(target); }
  ~OnTarget() { hwy::SetSupportedTargetsForTest(0); }
  OnTarget(const OnTarget&) = delete;
  OnTarget& operator=(const OnTarget&) = delete;
  /// Every compiled instruction set that this machine has.
  static std::vector<int64_t> All() {
    return hwy::SupportedAndGeneratedTargets();
  }
};

}  // namespace signet::backend::cpu::testing
