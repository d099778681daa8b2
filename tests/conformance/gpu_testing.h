#pragma once
// What GPU kernel tests share: device memory between canaries, poisoned until
// written, and kernels on a stream. Tests skip, with the reason, where there is
// no GPU. Only tests include this.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu::testing {

/// Memory of `count` T on the device; NaN-like poison until written.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(int64_t count) : count_(count) {
    const size_t bytes = TotalBytes();
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory_), bytes), kOk);
    EXPECT_EQ(cudaMemset(memory_, 0xff, bytes), kOk);
  }
  explicit DeviceArray(std::span<const T> values)
      : DeviceArray(static_cast<int64_t>(values.size())) {
    Set(values);
  }
  explicit DeviceArray(const std::vector<T>& values)
      : DeviceArray(std::span<const T>(values)) {}
  ~DeviceArray() { cudaFree(memory_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return reinterpret_cast<T*>(memory_ + kGuardBytes); }
  int64_t size() const { return count_; }
  void Set(std::span<const T> values) {
    EXPECT_EQ(cudaMemcpy(data(), values.data(), values.size_bytes(),
                         cudaMemcpyHostToDevice),
              kOk);
  }
  std::vector<T> Get() const {
    std::vector<T> values(static_cast<size_t>(count_));
    EXPECT_EQ(cudaMemcpy(values.data(), memory_ + kGuardBytes,
                         values.size() * sizeof(T), cudaMemcpyDeviceToHost),
              kOk);
    return values;
  }
  bool CanariesIntact() const {
    std::vector<unsigned char> all(TotalBytes());
    EXPECT_EQ(
        cudaMemcpy(all.data(), memory_, all.size(), cudaMemcpyDeviceToHost),
        kOk);
    for (size_t i = 0; i < kGuardBytes; ++i) {
      if (all[i] != 0xff || all[all.size() - 1 - i] != 0xff) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuardBytes = 1024;
  size_t TotalBytes() const {
    return static_cast<size_t>(count_) * sizeof(T) + 2 * kGuardBytes;
  }
  int64_t count_;
  unsigned char* memory_ = nullptr;
};

/// Skips where there is no GPU; else kernels on a stream of their own.
class GpuKernelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    const Status status = cudaGetDeviceCount(&count);
    if (status != kOk || count == 0) {
      GTEST_SKIP() << "no GPU here: " << cudaGetErrorString(status);
    }
    cudaDeviceProp properties;
    ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), kOk);
    ASSERT_EQ(cudaStreamCreate(&stream_), kOk);
    ASSERT_EQ(cudaMalloc(&scratch_, GpuKernels::kScratchBytes), kOk);
    // Dirty scratch must not show (X4).
    ASSERT_EQ(cudaMemset(scratch_, 0xff, GpuKernels::kScratchBytes), kOk);
    kernels_ = std::make_unique<GpuKernels>(
        stream_, properties.multiProcessorCount, scratch_);
  }
  void TearDown() override {
    if (kernels_ == nullptr) return;
    kernels_.reset();
    cudaFree(scratch_);
    cudaStreamDestroy(stream_);
  }
  /// Waits; fails the test when a launch or its work failed.
  void Finish() {
    ASSERT_EQ(kernels_->TakeStatus(), kOk)
        << cudaGetErrorString(cudaPeekAtLastError());
    const Status status = cudaStreamSynchronize(stream_);
    ASSERT_EQ(status, kOk) << cudaGetErrorString(status);
  }
  GpuKernels& kernels() { return *kernels_; }
  Stream stream() const { return stream_; }

 private:
  Stream stream_ = nullptr;
  void* scratch_ = nullptr;
  std::unique_ptr<GpuKernels> kernels_;
};

/// ||got - want|| / ||want||; NaN when anything is not finite.
inline double RelativeError(std::span<const float> got,
                            std::span<const double> want) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = static_cast<double>(got[i]) - want[i];
    difference += d * d;
    norm += want[i] * want[i];
  }
  return std::sqrt(difference) / std::sqrt(norm);
}
inline double RelativeError(std::span<const float> got,
                            std::span<const float> want) {
  const std::vector<double> wide(want.begin(), want.end());
  return RelativeError(got, std::span<const double>(wide));
}

/// Bit for bit.
template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace signet::backend::gpu::testing
