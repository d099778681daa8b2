#pragma once
// A paged cache with a scrambled page table, for tests of attention. Only tests
// include this.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "backend/cpu/kernel_testing.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/sequence_testing.h"

namespace signet::backend::cpu::testing {

struct CacheShape {
  tensor::DType dtype;
  int64_t slots;
  int64_t context;  // tokens of a slot
  int64_t page_size;
  int64_t kv_heads;
  int64_t head_dim;
};

/// NaN wherever nothing was appended.
class PagedCache {
 public:
  PagedCache(Random& random, const CacheShape& shape) : shape_(shape) {
    pages_per_slot_ = (shape.context + shape.page_size - 1) / shape.page_size;
    page_table_.resize(static_cast<size_t>(shape.slots * pages_per_slot_));
    std::iota(page_table_.begin(), page_table_.end(), 0);
    std::shuffle(page_table_.begin(), page_table_.end(), random);
    const auto count =
        page_table_.size() *
        static_cast<size_t>(shape.page_size * shape.kv_heads * shape.head_dim);
    // All ones is a NaN in both dtypes.
    k_.assign(count * tensor::SizeOf(shape.dtype), 0xFF);
    v_ = k_;
  }

  KvView view() {
    return {.k = k_.data(),
            .v = v_.data(),
            .dtype = shape_.dtype,
            .page_table = page_table_.data(),
            .pages_per_slot = pages_per_slot_,
            .page_size = shape_.page_size,
            .num_kv_heads = shape_.kv_heads,
            .head_dim = shape_.head_dim};
  }
  /// Element i of a token's head, as the cache holds it; from the contract of
  /// KvView, not from the code under test.
  float Key(int64_t slot, int64_t token, int64_t head, int64_t i) const {
    return At(k_, slot, token, head, i);
  }
  float Value(int64_t slot, int64_t token, int64_t head, int64_t i) const {
    return At(v_, slot, token, head, i);
  }
  const std::vector<unsigned char>& k_bytes() const { return k_; }
  const std::vector<unsigned char>& v_bytes() const { return v_; }

 private:
  float At(const std::vector<unsigned char>& bytes, int64_t slot, int64_t token,
           int64_t head, int64_t i) const {
    const int64_t page = page_table_[static_cast<size_t>(
        slot * pages_per_slot_ + token / shape_.page_size)];
    const int64_t row = page * shape_.page_size + token % shape_.page_size;
    const auto at = static_cast<size_t>(
        (row * shape_.kv_heads + head) * shape_.head_dim + i);
    if (shape_.dtype == tensor::DType::kF32) {
      float value;
      std::memcpy(&value, bytes.data() + at * 4, 4);
      return value;
    }
    uint16_t bits;
    std::memcpy(&bits, bytes.data() + at * 2, 2);
    return std::bit_cast<float>(uint32_t{bits} << 16);
  }

  CacheShape shape_;
  int64_t pages_per_slot_ = 0;
  std::vector<int32_t> page_table_;
  std::vector<unsigned char> k_;
  std::vector<unsigned char> v_;
};

}  // namespace signet::backend::cpu::testing
