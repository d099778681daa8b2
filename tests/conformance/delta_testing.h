#pragma once
// What tests of the DeltaNet mixer and of sampling share: weights, rows and
// states on the device with what the CPU's kernels take of them. Only tests
// include this.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_kernels.h"
#include "backend/cpu/kernel_testing.h"
#include "backend/cpu/thread_pool.h"
#include "backend/kernel_bench.h"
#include "tests/conformance/gpu_testing.h"

namespace signet::backend::gpu::testing {

using backend::testing::KernelBench;
using cpu::testing::Random;
using cpu::testing::RandomFloats;
using tensor::DType;

/// The CPU's kernels, which the GPU's are compared with.
class Reference {
 public:
  Reference() : pool_(16), kernels_(cpu::MakeCpuKernels(&pool_)) {}
  Kernels& kernels() { return *kernels_; }

 private:
  cpu::ThreadPool pool_;
  std::unique_ptr<Kernels> kernels_;
};

/// A weight matrix, or vector, on both sides.
class Weights {
 public:
  Weights(Random& random, DType dtype, int64_t rows, int64_t cols)
      : host_(random, dtype, rows, cols),
        device_(std::span<const unsigned char>(
            static_cast<const unsigned char*>(host_.data()),
            static_cast<size_t>(rows * cols) * tensor::SizeOf(dtype))) {}
  WeightView host() const { return host_.view(); }
  WeightView device() {
    WeightView view = host_.view();
    view.data = device_.data();
    return view;
  }
  VectorView host_vector() const { return AsVector(host_.view()); }
  VectorView device_vector() { return AsVector(device()); }

 private:
  static VectorView AsVector(const WeightView& view) {
    return {view.data, view.dtype, view.rows * view.cols};
  }
  cpu::testing::StoredMatrix host_;
  DeviceArray<unsigned char> device_;
};

/// The rows of a call on both sides; those past the live ones hold values that
/// no kernel could use.
class CallRows {
 public:
  /// Row i is sequence slots[i] at positions[i].
  CallRows(std::vector<int32_t> slots, std::vector<int32_t> positions,
           int64_t capacity)
      : live_{static_cast<int32_t>(slots.size())},
        slots_(std::move(slots)),
        positions_(std::move(positions)),
        device_live_(live_),
        device_slots_(capacity),
        device_positions_(capacity) {
    slots_.resize(static_cast<size_t>(capacity), 1 << 28);
    positions_.resize(static_cast<size_t>(capacity), 1 << 28);
    device_slots_.Set(slots_);
    device_positions_.Set(positions_);
  }
  /// `live` rows of one sequence from `position` on.
  static std::unique_ptr<CallRows> One(int64_t live, int64_t slot,
                                       int64_t position, int64_t capacity) {
    std::vector<int32_t> slots, positions;
    for (int64_t i = 0; i < live; ++i) {
      slots.push_back(static_cast<int32_t>(slot));
      positions.push_back(static_cast<int32_t>(position + i));
    }
    return std::make_unique<CallRows>(slots, positions, capacity);
  }
  int64_t live() const { return live_[0]; }
  int64_t capacity() const { return static_cast<int64_t>(slots_.size()); }
  Rows host() const {
    return {live_.data(), slots_.data(), positions_.data(), capacity()};
  }
  Rows device() {
    return {device_live_.data(), device_slots_.data(), device_positions_.data(),
            capacity()};
  }

 private:
  std::vector<int32_t> live_;
  std::vector<int32_t> slots_;
  std::vector<int32_t> positions_;
  DeviceArray<int32_t> device_live_;
  DeviceArray<int32_t> device_slots_;
  DeviceArray<int32_t> device_positions_;
};

/// The first `count` values, after a check that nothing else was written.
template <typename T>
std::vector<T> Written(const DeviceArray<T>& out, int64_t count) {
  EXPECT_TRUE(out.CanariesIntact());
  std::vector<T> values = out.Get();
  const std::vector<T> rest(values.begin() + count, values.end());
  std::vector<T> poison(rest.size());
  std::memset(static_cast<void*>(poison.data()), 0xff,
              poison.size() * sizeof(T));
  EXPECT_TRUE(SameBits(rest, poison)) << "written past the live rows";
  values.resize(static_cast<size_t>(count));
  return values;
}

/// The states of all slots; NaN in those whose sequence starts in the call,
/// which must not show.
inline std::vector<float> RandomStates(Random& random, int64_t slots,
                                       int64_t size, const CallRows& rows) {
  std::vector<float> states = RandomFloats(random, slots * size);
  const Rows host = rows.host();
  for (int64_t row = 0; row < rows.live(); ++row) {
    if (host.position[row] != 0) continue;
    std::fill_n(states.begin() + host.slot[row] * size, size,
                std::numeric_limits<float>::quiet_NaN());
  }
  return states;
}

}  // namespace signet::backend::gpu::testing
