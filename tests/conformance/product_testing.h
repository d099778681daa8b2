#pragma once
// What tests of products share: random matrices as stored, on the host and on
// the device, and the CPU kernels that they are compared with. Only tests
// include this.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_kernels.h"
#include "backend/cpu/thread_pool.h"
#include "backend/kernels.h"
#include "backend/views.h"
#include "tensor/dtype.h"
#include "tests/conformance/gpu_testing.h"

namespace signet::backend::gpu::testing {

/// Rows of x, and the weight that they meet.
struct ProductShape {
  int64_t capacity;
  int64_t live;
  int64_t rows;  // of the weight
  int64_t cols;
  tensor::DType dtype = tensor::DType::kBF16;
};

inline std::string NameOf(const ProductShape& shape) {
  return std::to_string(shape.live) + " of " + std::to_string(shape.capacity) +
         " rows, weight " + std::to_string(shape.rows) + " x " +
         std::to_string(shape.cols) + " " +
         std::string(tensor::Name(shape.dtype));
}

/// splitmix64: matrices of the flagship are many numbers.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(bound));
  }
  /// In [-1, 1), a multiple of 2^-23.
  float Uniform() {
    return static_cast<float>(static_cast<int32_t>(Next() >> 40) - (1 << 23)) *
           0x1p-23f;
  }

 private:
  uint64_t state_;
};

/// Nearest even; finite values.
inline uint16_t BF16Bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float RoundToBF16(float value) {
  return std::bit_cast<float>(static_cast<uint32_t>(BF16Bits(value)) << 16);
}
/// Of a value that f16 holds as a normal number, or zero.
inline uint16_t F16Bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  if (value == 0.0f) return static_cast<uint16_t>(sign);
  const uint32_t exponent = (bits >> 23 & 0xff) - 127 + 15;
  return static_cast<uint16_t>(sign | exponent << 10 | (bits >> 13 & 0x3ff));
}

/// Numbers of one dtype: their values, and their bytes on the device.
class Stored {
 public:
  Stored(Numbers& numbers, tensor::DType dtype, int64_t count)
      : dtype_(dtype), values_(static_cast<size_t>(count)) {
    for (float& value : values_) {
      value = numbers.Uniform();
      if (dtype == tensor::DType::kBF16) value = RoundToBF16(value);
      if (dtype == tensor::DType::kF16) {
        value = std::round(value * 1024) / 1024;
      }
    }
    Upload();
  }
  Stored(tensor::DType dtype, std::vector<float> values)
      : dtype_(dtype), values_(std::move(values)) {
    Upload();
  }

  const std::vector<float>& values() const { return values_; }
  /// As a bf16 input meets them.
  std::vector<float> Rounded() const {
    std::vector<float> rounded = values_;
    for (float& value : rounded) value = RoundToBF16(value);
    return rounded;
  }
  void* data() { return bytes_->data(); }
  tensor::DType dtype() const { return dtype_; }

 private:
  void Upload() {
    const size_t size = tensor::SizeOf(dtype_);
    std::vector<unsigned char> bytes(values_.size() * size);
    for (size_t i = 0; i < values_.size(); ++i) {
      uint32_t bits = std::bit_cast<uint32_t>(values_[i]);
      if (dtype_ == tensor::DType::kBF16) bits = BF16Bits(values_[i]);
      if (dtype_ == tensor::DType::kF16) bits = F16Bits(values_[i]);
      std::memcpy(bytes.data() + i * size, &bits, size);
    }
    bytes_ = std::make_unique<DeviceArray<unsigned char>>(bytes);
  }

  tensor::DType dtype_;
  std::vector<float> values_;
  std::unique_ptr<DeviceArray<unsigned char>> bytes_;
};

/// The input rows of a call. Rows past the live ones are NaN on the device.
class Inputs {
 public:
  Inputs(tensor::DType dtype, std::span<const float> live_values,
         int64_t capacity_values)
      : dtype_(dtype),
        bytes_(capacity_values * static_cast<int64_t>(tensor::SizeOf(dtype))) {
    std::vector<unsigned char> bytes(live_values.size() *
                                     tensor::SizeOf(dtype));
    for (size_t i = 0; i < live_values.size(); ++i) {
      if (dtype == tensor::DType::kBF16) {
        const uint16_t bits = BF16Bits(live_values[i]);
        std::memcpy(bytes.data() + 2 * i, &bits, 2);
      } else {
        std::memcpy(bytes.data() + 4 * i, &live_values[i], 4);
      }
    }
    bytes_.Set(bytes);
  }
  InputView view() { return {.data = bytes_.data(), .dtype = dtype_}; }

 private:
  tensor::DType dtype_;
  DeviceArray<unsigned char> bytes_;
};

/// Inputs that bf16 holds, so that a program's rounding changes nothing.
inline std::vector<float> RoundedInputs(Numbers& numbers, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = RoundToBF16(numbers.Uniform());
  return values;
}

/// The live count of a call, on the device.
class DeviceRows {
 public:
  DeviceRows(int64_t live, int64_t capacity)
      : live_(std::vector<int32_t>{static_cast<int32_t>(live)}),
        capacity_(capacity) {}
  Rows view() { return {.live = live_.data(), .capacity = capacity_}; }

 private:
  DeviceArray<int32_t> live_;
  int64_t capacity_;
};

/// What DeviceArray leaves where nothing is written.
inline bool IsUnwritten(float value) {
  return std::bit_cast<uint32_t>(value) == 0xffffffffu;
}
inline bool AllUnwritten(std::span<const float> values) {
  for (float value : values) {
    if (!IsUnwritten(value)) return false;
  }
  return true;
}

/// Products are compared with the CPU's on the values that the GPU multiplies.
class ProductTest : public GpuKernelTest {
 protected:
  /// Tensor cores add bf16 products exactly but cut sums off instead of
  /// rounding them: at most 2^-23 of the running sum each 16 terms, which over
  /// the 256 steps of the longest sum here stays below 1e-5. The plain kernels
  /// are ten times closer.
  static constexpr double kRoundedBound = 1e-5;
  static constexpr double kFloatBound = 2e-6;

  ProductTest()
      : pool_(static_cast<int>(
            std::max(1u, std::thread::hardware_concurrency()))),
        cpu_(cpu::MakeCpuKernels(&pool_)) {}
  Kernels& cpu() { return *cpu_; }

 private:
  cpu::ThreadPool pool_;
  std::unique_ptr<Kernels> cpu_;
};

}  // namespace signet::backend::gpu::testing
