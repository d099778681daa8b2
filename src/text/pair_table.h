#pragma once
// A hash map from pairs of 32-bit numbers to pairs, for merges and for the
// edges of a trie: flat, so that a look-up is one cache line. Built by one
// thread, then read by any.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace signet::text {

class PairTable {
 public:
  struct Value {
    int32_t first;
    int32_t second;
  };
  enum class Inserted {
    kNew,
    kAlreadyThere,  // nothing was changed
    kCrowded,       // keys chosen to collide; the table is not usable
  };

  /// Room for `num_pairs` insertions.
  explicit PairTable(size_t num_pairs)
      : slots_(std::bit_ceil(2 * num_pairs + 2)), mask_(slots_.size() - 1) {}

  /// `left` and `right` are at least 0.
  Inserted Insert(int32_t left, int32_t right, Value value) {
    const uint64_t key = Key(left, right);
    size_t at = Mix(key) & mask_;
    for (int probe = 0; probe < kMaxProbes; ++probe) {
      if (slots_[at].key == key) return Inserted::kAlreadyThere;
      if (slots_[at].key == kEmpty) {
        slots_[at] = {key, value};
        return Inserted::kNew;
      }
      at = (at + 1) & mask_;
    }
    return Inserted::kCrowded;
  }

  /// Null when the pair is not there. Valid until the next insertion.
  const Value* Find(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    size_t at = Mix(key) & mask_;
    while (slots_[at].key != kEmpty) {
      if (slots_[at].key == key) return &slots_[at].value;
      at = (at + 1) & mask_;
    }
    return nullptr;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  // At half load an honest file stays below 60.
  static constexpr int kMaxProbes = 512;

  struct Slot {
    uint64_t key = kEmpty;
    Value value = {0, 0};
  };

  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 |
           static_cast<uint32_t>(right);
  }
  // The finaliser of MurmurHash3.
  static uint64_t Mix(uint64_t key) {
    key = (key ^ (key >> 33)) * 0xFF51AFD7ED558CCDu;
    key = (key ^ (key >> 33)) * 0xC4CEB9FE1A85EC53u;
    return key ^ (key >> 33);
  }

  std::vector<Slot> slots_;
  size_t mask_;
};

}  // namespace signet::text
