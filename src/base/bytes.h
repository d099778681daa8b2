#pragma once
// A quantity of bytes whose arithmetic cannot wrap: an overflow sticks at the
// greatest value, so that every comparison with a budget refuses it. Values.

#include <compare>
#include <cstdint>
#include <limits>
#include <string>

namespace signet {

class Bytes {
 public:
  constexpr Bytes() = default;
  explicit constexpr Bytes(uint64_t value) : value_(value) {}

  static constexpr Bytes Overflow() {
    return Bytes(std::numeric_limits<uint64_t>::max());
  }
  constexpr uint64_t value() const { return value_; }
  constexpr bool overflowed() const { return *this == Overflow(); }

  constexpr Bytes operator+(Bytes other) const {
    uint64_t sum = 0;
    if (__builtin_add_overflow(value_, other.value_, &sum)) return Overflow();
    return Bytes(sum);
  }
  constexpr Bytes& operator+=(Bytes other) { return *this = *this + other; }
  /// Only when `other <= *this`; an overflowed quantity stays one.
  constexpr Bytes operator-(Bytes other) const {
    return overflowed() ? *this : Bytes(value_ - other.value_);
  }
  constexpr Bytes operator*(uint64_t factor) const {
    uint64_t product = 0;
    if (overflowed() && factor != 0) return Overflow();
    if (__builtin_mul_overflow(value_, factor, &product)) return Overflow();
    return Bytes(product);
  }
  /// Rounded up to a multiple of `alignment`, a power of two.
  constexpr Bytes AlignUp(uint64_t alignment) const {
    const Bytes raised = *this + Bytes(alignment - 1);
    return raised.overflowed() ? raised
                               : Bytes(raised.value_ & ~(alignment - 1));
  }
  friend constexpr auto operator<=>(Bytes, Bytes) = default;

 private:
  uint64_t value_ = 0;
};

/// For people: `69.32 GB`, `512 B` (powers of ten, as disks are sold).
std::string HumanBytes(Bytes bytes);

}  // namespace signet
