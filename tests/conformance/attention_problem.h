#pragma once
// What tests of attention and its neighbours share: rows with slots and
// positions, and a paged cache with a scrambled page table, on host and device.
// Only tests include this.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/conformance/gpu_testing.h"

namespace signet::backend::gpu::testing {

using Random = std::mt19937;

inline std::vector<float> RandomFloats(Random& random, int64_t count,
                                       float most = 1.0f) {
  std::uniform_real_distribution<float> distribution(-most, most);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = distribution(random);
  return values;
}

/// The bits of a value as bf16, nearest even.
inline uint16_t BF16Bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float FromBF16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

/// Rows of `capacity`, the first ones live; the others hold what no kernel
/// could use. On the host and on the device.
class TestRows {
 public:
  TestRows(const std::vector<int32_t>& slots,
           const std::vector<int32_t>& positions, int64_t capacity)
      : live_(static_cast<int32_t>(slots.size())),
        slots_(slots),
        positions_(positions) {
    slots_.resize(static_cast<size_t>(capacity), 1 << 28);
    positions_.resize(static_cast<size_t>(capacity), 1 << 28);
    device_live_.Set(std::span(&live_, 1));
    device_slots_ = std::make_unique<DeviceArray<int32_t>>(slots_);
    device_positions_ = std::make_unique<DeviceArray<int32_t>>(positions_);
  }
  /// Consecutive positions of one slot.
  static TestRows One(int32_t live, int32_t slot, int32_t position,
                      int64_t capacity) {
    std::vector<int32_t> positions(static_cast<size_t>(live));
    std::iota(positions.begin(), positions.end(), position);
    return TestRows(std::vector<int32_t>(positions.size(), slot), positions,
                    capacity);
  }

  int64_t live() const { return live_; }
  /// Of the live rows.
  std::vector<int32_t> slots() const {
    return {slots_.begin(), slots_.begin() + live_};
  }
  std::vector<int32_t> positions() const {
    return {positions_.begin(), positions_.begin() + live_};
  }
  int64_t capacity() const { return static_cast<int64_t>(slots_.size()); }
  Rows host() const {
    return {.live = &live_,
            .slot = slots_.data(),
            .position = positions_.data(),
            .capacity = capacity()};
  }
  Rows device() {
    return {.live = device_live_.data(),
            .slot = device_slots_->data(),
            .position = device_positions_->data(),
            .capacity = capacity()};
  }

 private:
  int32_t live_;
  std::vector<int32_t> slots_;
  std::vector<int32_t> positions_;
  DeviceArray<int32_t> device_live_{1};
  std::unique_ptr<DeviceArray<int32_t>> device_slots_;
  std::unique_ptr<DeviceArray<int32_t>> device_positions_;
};

struct CacheShape {
  tensor::DType dtype = tensor::DType::kBF16;
  int64_t slots = 1;
  int64_t context = 1;  // tokens of a slot
  int64_t page_size = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 1;
};

/// NaN wherever nothing was put.
class PagedCache {
 public:
  PagedCache(Random& random, const CacheShape& shape)
      : shape_(shape),
        pages_per_slot_((shape.context + shape.page_size - 1) /
                        shape.page_size),
        page_table_(static_cast<size_t>(shape.slots * pages_per_slot_)),
        k_(static_cast<size_t>(Bytes()), 0xff),
        v_(k_) {
    std::iota(page_table_.begin(), page_table_.end(), 0);
    std::shuffle(page_table_.begin(), page_table_.end(), random);
    device_page_table_ = std::make_unique<DeviceArray<int32_t>>(page_table_);
    Upload();
  }

  const CacheShape& shape() const { return shape_; }
  int64_t width() const { return shape_.kv_heads * shape_.head_dim; }

  /// Random keys and values at positions [begin, end) of a slot, on the host.
  void Put(Random& random, int64_t slot, int64_t begin, int64_t end) {
    for (int64_t position = begin; position < end; ++position) {
      for (std::vector<unsigned char>* to : {&k_, &v_}) {
        const std::vector<float> values = RandomFloats(random, width());
        for (int64_t i = 0; i < width(); ++i) {
          Store(*to, At(slot, position) + i, values[static_cast<size_t>(i)]);
        }
      }
    }
  }
  /// The same positions of another cache's slot.
  void Copy(const PagedCache& from, int64_t slot, int64_t begin, int64_t end) {
    const int64_t size = static_cast<int64_t>(tensor::SizeOf(shape_.dtype));
    for (int64_t position = begin; position < end; ++position) {
      const int64_t to = At(slot, position) * size;
      const int64_t at = from.At(slot, position) * size;
      const auto bytes = static_cast<size_t>(width() * size);
      std::memcpy(k_.data() + to, from.k_.data() + at, bytes);
      std::memcpy(v_.data() + to, from.v_.data() + at, bytes);
    }
  }
  void Upload() {
    device_k_ = std::make_unique<DeviceArray<unsigned char>>(k_);
    device_v_ = std::make_unique<DeviceArray<unsigned char>>(v_);
  }

  KvView host() { return View(k_.data(), v_.data(), page_table_.data()); }
  KvView device() {
    return View(device_k_->data(), device_v_->data(),
                device_page_table_->data());
  }
  const std::vector<unsigned char>& host_k() const { return k_; }
  const std::vector<unsigned char>& host_v() const { return v_; }
  std::vector<unsigned char> DeviceK() const { return device_k_->Get(); }
  std::vector<unsigned char> DeviceV() const { return device_v_->Get(); }
  bool CanariesIntact() const {
    return device_k_->CanariesIntact() && device_v_->CanariesIntact();
  }

  /// Positions [0, end) of a slot as floats, [end, kv_heads, head_dim].
  std::vector<float> Keys(int64_t slot, int64_t end) const {
    return Floats(k_, slot, end);
  }
  std::vector<float> Values(int64_t slot, int64_t end) const {
    return Floats(v_, slot, end);
  }

 private:
  int64_t Bytes() const {
    return shape_.slots * pages_per_slot_ * shape_.page_size * width() *
           static_cast<int64_t>(tensor::SizeOf(shape_.dtype));
  }
  // From the contract of KvView, not from the code under test.
  int64_t At(int64_t slot, int64_t position) const {
    const int64_t page = page_table_[static_cast<size_t>(
        slot * pages_per_slot_ + position / shape_.page_size)];
    return (page * shape_.page_size + position % shape_.page_size) * width();
  }
  void Store(std::vector<unsigned char>& to, int64_t at, float value) const {
    if (shape_.dtype == tensor::DType::kF32) {
      std::memcpy(to.data() + at * 4, &value, 4);
    } else {
      const uint16_t bits = BF16Bits(value);
      std::memcpy(to.data() + at * 2, &bits, 2);
    }
  }
  std::vector<float> Floats(const std::vector<unsigned char>& from,
                            int64_t slot, int64_t end) const {
    std::vector<float> floats;
    for (int64_t position = 0; position < end; ++position) {
      const int64_t at = At(slot, position);
      for (int64_t i = 0; i < width(); ++i) {
        floats.push_back(Load(from, at + i));
      }
    }
    return floats;
  }
  float Load(const std::vector<unsigned char>& from, int64_t at) const {
    if (shape_.dtype == tensor::DType::kF32) {
      float value;
      std::memcpy(&value, from.data() + at * 4, 4);
      return value;
    }
    uint16_t bits;
    std::memcpy(&bits, from.data() + at * 2, 2);
    return FromBF16(bits);
  }
  KvView View(void* k, void* v, const int32_t* page_table) const {
    return {.k = k,
            .v = v,
            .dtype = shape_.dtype,
            .page_table = page_table,
            .pages_per_slot = pages_per_slot_,
            .page_size = shape_.page_size,
            .num_kv_heads = shape_.kv_heads,
            .head_dim = shape_.head_dim};
  }

  CacheShape shape_;
  int64_t pages_per_slot_;
  std::vector<int32_t> page_table_;
  std::vector<unsigned char> k_;
  std::vector<unsigned char> v_;
  std::unique_ptr<DeviceArray<int32_t>> device_page_table_;
  std::unique_ptr<DeviceArray<unsigned char>> device_k_;
  std::unique_ptr<DeviceArray<unsigned char>> device_v_;
};

/// The first `count` floats, after a check that all of them and nothing else
/// was written.
inline std::vector<float> Written(const DeviceArray<float>& out,
                                  int64_t count) {
  EXPECT_TRUE(out.CanariesIntact());
  std::vector<float> values = out.Get();
  for (size_t i = 0; i < values.size(); ++i) {
    const bool poison = std::bit_cast<uint32_t>(values[i]) == 0xffffffff;
    if (poison == (static_cast<int64_t>(i) < count)) {
      ADD_FAILURE() << (poison ? "not written: " : "written past live: ") << i;
      break;
    }
  }
  values.resize(static_cast<size_t>(count));
  return values;
}

/// A vector as stored, of values around `most` / 2 in size.
class StoredVector {
 public:
  StoredVector(Random& random, tensor::DType dtype, int64_t size)
      : dtype_(dtype), size_(size) {
    for (int64_t i = 0; i < size; ++i) {
      // A few bits, so that every dtype holds them exactly.
      const float value = static_cast<float>(random() % 129) / 128 - 0.5f;
      if (dtype == tensor::DType::kF32) {
        Append(std::bit_cast<uint32_t>(value), 4);
      } else if (dtype == tensor::DType::kBF16) {
        Append(BF16Bits(value), 2);
      } else {
        Append(F16Bits(value), 2);
      }
    }
    device_ = std::make_unique<DeviceArray<unsigned char>>(bytes_);
  }
  VectorView host() const { return {bytes_.data(), dtype_, size_}; }
  VectorView device() { return {device_->data(), dtype_, size_}; }

 private:
  // Of multiples of 1/128 up to 1/2.
  static uint32_t F16Bits(float value) {
    const uint32_t sign = value < 0 ? 0x8000 : 0;
    const float size = std::abs(value);
    if (size == 0) return sign;
    int exponent;
    const float fraction = std::frexp(size, &exponent);  // in [1/2, 1)
    const auto mantissa = static_cast<uint32_t>(fraction * 2048) - 1024;
    return sign | static_cast<uint32_t>(exponent + 14) << 10 | mantissa;
  }
  void Append(uint32_t bits, size_t count) {
    const auto* from = reinterpret_cast<const unsigned char*>(&bits);
    bytes_.insert(bytes_.end(), from, from + count);
  }
  tensor::DType dtype_;
  int64_t size_;
  std::vector<unsigned char> bytes_;
  std::unique_ptr<DeviceArray<unsigned char>> device_;
};

}  // namespace signet::backend::gpu::testing
