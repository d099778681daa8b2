// Ops that treat every element alike, the embedding and the norm against the
// CPU's: bit for bit but for the norm, whose sum has another order.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/kernel_bench.h"
#include "tests/conformance/product_testing.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using backend::testing::KernelBench;
using tensor::DType;

struct Extent {
  int64_t capacity;
  int64_t live;
  int64_t multiple;
  int64_t width;

  int64_t live_values() const { return live * multiple * width; }
  int64_t values() const { return capacity * multiple * width; }
};

const Extent kExtents[] = {
    {1, 1, 1, 2048}, {1, 1, 8, 512},     {3, 2, 1, 44},     {5, 5, 3, 7},
    {8, 7, 2, 22},   {2, 0, 1, 16},      {1, 1, 1, 1},      {4097, 4001, 1, 33},
    {9, 8, 1, 5120}, {300, 257, 8, 512}, {33, 31, 1, 17408}};

std::string NameOf(const Extent& e) {
  return std::to_string(e.live) + " of " + std::to_string(e.capacity) + " x " +
         std::to_string(e.multiple) + " rows of " + std::to_string(e.width);
}

std::vector<float> Uniforms(Numbers& numbers, int64_t count, float scale) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = scale * numbers.Uniform();
  return values;
}

class ElementwiseGpuTest : public ProductTest {
 protected:
  /// Runs `gpu` and `cpu` on outputs of f32 and compares the live values bit
  /// for bit; the others stay as they were.
  void ExpectSame(const Extent& extent,
                  const std::function<void(const Rows&, float*)>& gpu_op,
                  const std::function<void(const Rows&, float*)>& cpu_op) {
    DeviceRows rows(extent.live, extent.capacity);
    DeviceArray<float> out(extent.values());
    gpu_op(rows.view(), out.data());
    Finish();
    EXPECT_TRUE(out.CanariesIntact());
    std::vector<float> got = out.Get();
    EXPECT_TRUE(AllUnwritten(
        std::span(got).subspan(static_cast<size_t>(extent.live_values()))));
    got.resize(static_cast<size_t>(extent.live_values()));
    std::vector<float> want(got.size());
    const auto live = static_cast<int32_t>(extent.live);
    cpu_op({.live = &live, .capacity = extent.capacity}, want.data());
    EXPECT_TRUE(SameBits(got, want));
  }
  /// Live values on the device, poison after them.
  static std::vector<float> Padded(std::vector<float> values, int64_t count) {
    values.resize(static_cast<size_t>(count),
                  std::numeric_limits<float>::quiet_NaN());
    return values;
  }
};

TEST_F(ElementwiseGpuTest, ActivationIsTheCpus) {
  Numbers numbers(201);
  for (const Extent& e : kExtents) {
    SCOPED_TRACE(NameOf(e));
    const std::vector<float> gate = Uniforms(numbers, e.live_values(), 20.0f);
    const std::vector<float> up = Uniforms(numbers, e.live_values(), 3.0f);
    DeviceArray<float> device_gate(Padded(gate, e.values()));
    DeviceArray<float> device_up(Padded(up, e.values()));
    ExpectSame(
        e,
        [&](const Rows& rows, float* out) {
          kernels().Activation(KernelBench::Launch(),
                               {rows, e.multiple, e.width, device_gate.data(),
                                device_up.data(), out});
        },
        [&](const Rows& rows, float* out) {
          cpu().Activation(
              KernelBench::Launch(),
              {rows, e.multiple, e.width, gate.data(), up.data(), out});
        });
    // In place.
    DeviceRows rows(e.live, e.capacity);
    DeviceArray<float> out(e.values());
    kernels().Activation(KernelBench::Launch(),
                         {rows.view(), e.multiple, e.width, device_gate.data(),
                          device_up.data(), out.data()});
    kernels().Activation(KernelBench::Launch(),
                         {rows.view(), e.multiple, e.width, device_gate.data(),
                          device_up.data(), device_gate.data()});
    Finish();
    std::vector<float> there = out.Get();
    std::vector<float> here = device_gate.Get();
    there.resize(static_cast<size_t>(e.live_values()));
    here.resize(there.size());
    EXPECT_TRUE(SameBits(here, there));
  }
}

TEST_F(ElementwiseGpuTest, AddsAndReductionAreTheCpus) {
  Numbers numbers(202);
  for (Extent e : kExtents) {
    e.multiple = 1;
    SCOPED_TRACE(NameOf(e));
    const std::vector<float> a = Uniforms(numbers, e.live_values(), 1.0f);
    const std::vector<float> b = Uniforms(numbers, e.live_values(), 1.0f);
    const std::vector<float> gate = Uniforms(numbers, e.live, 8.0f);
    DeviceArray<float> device_a(Padded(a, e.values()));
    DeviceArray<float> device_b(Padded(b, e.values()));
    DeviceArray<float> device_gate(Padded(gate, e.capacity));
    const LaunchKey key = KernelBench::Launch();
    ExpectSame(
        e,
        [&](const Rows& rows, float* out) {
          kernels().ResidualAdd(
              key, {rows, e.width, device_a.data(), device_b.data(), out});
        },
        [&](const Rows& rows, float* out) {
          cpu().ResidualAdd(key, {rows, e.width, a.data(), b.data(), out});
        });
    ExpectSame(
        e,
        [&](const Rows& rows, float* out) {
          kernels().GatedAdd(key, {rows, e.width, device_a.data(),
                                   device_gate.data(), device_b.data(), out});
        },
        [&](const Rows& rows, float* out) {
          cpu().GatedAdd(key,
                         {rows, e.width, a.data(), gate.data(), b.data(), out});
        });
    ExpectSame(
        e,
        [&](const Rows& rows, float* out) {
          kernels().IdentityReduce(key, {rows, e.width, device_a.data(), out});
        },
        [&](const Rows& rows, float* out) {
          cpu().IdentityReduce(key, {rows, e.width, a.data(), out});
        });
    // In place, one after the other.
    DeviceRows rows(e.live, e.capacity);
    kernels().ResidualAdd(key, {rows.view(), e.width, device_a.data(),
                                device_b.data(), device_a.data()});
    kernels().GatedAdd(
        key, {rows.view(), e.width, device_a.data(), device_gate.data(),
              device_b.data(), device_a.data()});
    Finish();
    std::vector<float> got = device_a.Get();
    got.resize(static_cast<size_t>(e.live_values()));
    std::vector<float> want = a;
    const auto live = static_cast<int32_t>(e.live);
    const Rows host = {.live = &live, .capacity = e.capacity};
    cpu().ResidualAdd(key, {host, e.width, want.data(), b.data(), want.data()});
    cpu().GatedAdd(
        key, {host, e.width, want.data(), gate.data(), b.data(), want.data()});
    EXPECT_TRUE(SameBits(got, want));
  }
}

TEST_F(ElementwiseGpuTest, RoundingIsTheCpus) {
  Numbers numbers(203);
  const float kSpecial[] = {0.0f,
                            -0.0f,
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::denorm_min(),
                            1.00390625f,   // halfway, to even below
                            1.01171875f};  // halfway, to even above
  for (const Extent& e : kExtents) {
    SCOPED_TRACE(NameOf(e));
    std::vector<float> x(static_cast<size_t>(e.live_values()));
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = i % 5 == 0 ? kSpecial[i / 5 % std::size(kSpecial)]
                        : numbers.Uniform();
    }
    DeviceArray<float> device_x(Padded(x, e.values()));
    DeviceRows rows(e.live, e.capacity);
    DeviceArray<uint16_t> out(e.values());
    kernels().Round(KernelBench::Launch(), {rows.view(), e.multiple, e.width,
                                            device_x.data(), out.data()});
    Finish();
    EXPECT_TRUE(out.CanariesIntact());
    std::vector<uint16_t> got = out.Get();
    for (size_t i = x.size(); i < got.size(); ++i) {
      ASSERT_EQ(got[i], 0xffff) << i;
    }
    got.resize(x.size());
    std::vector<uint16_t> want(x.size());
    const auto live = static_cast<int32_t>(e.live);
    cpu().Round(KernelBench::Launch(), {{.live = &live, .capacity = e.capacity},
                                        e.multiple,
                                        e.width,
                                        x.data(),
                                        want.data()});
    EXPECT_TRUE(SameBits(got, want));
  }
}

TEST_F(ElementwiseGpuTest, EmbeddingsAreTheTablesRows) {
  Numbers numbers(204);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int64_t width : {1, 22, 44, 2048, 5120}) {
      for (const auto& [capacity, live] :
           {std::pair<int64_t, int64_t>{1, 1}, {5, 3}, {130, 129}, {2, 0}}) {
        const Extent e = {capacity, live, 1, width};
        SCOPED_TRACE(std::string(tensor::Name(dtype)) + ", " + NameOf(e));
        const int64_t vocab = 37;
        Stored table(numbers, dtype, vocab * width);
        std::vector<int32_t> ids(static_cast<size_t>(capacity), -7);
        std::vector<float> want;
        for (int64_t t = 0; t < live; ++t) {
          const int64_t id = t == 0 ? vocab - 1 : numbers.Below(vocab);
          ids[static_cast<size_t>(t)] = static_cast<int32_t>(id);
          const auto row = table.values().begin() + id * width;
          want.insert(want.end(), row, row + width);
        }
        DeviceArray<int32_t> device_ids(ids);
        ExpectSame(
            e,
            [&](const Rows& rows, float* out) {
              kernels().Embed(KernelBench::Launch(), {rows,
                                                      device_ids.data(),
                                                      {.data = table.data(),
                                                       .dtype = dtype,
                                                       .rows = vocab,
                                                       .cols = width},
                                                      out});
            },
            [&](const Rows&, float* out) {
              std::copy(want.begin(), want.end(), out);
            });
      }
    }
  }
}

// An fp32 sum of up to 17408 squares in 256 chains: far below 2e-6.
TEST_F(ElementwiseGpuTest, NormsAgreeWithTheCpu) {
  Numbers numbers(205);
  for (DType dtype : {DType::kBF16, DType::kF32, DType::kF16}) {
    for (Extent e : kExtents) {
      e.multiple = 1;
      if (e.live == 0) continue;
      SCOPED_TRACE(std::string(tensor::Name(dtype)) + ", " + NameOf(e));
      Stored weight(numbers, dtype, e.width);
      const std::vector<float> x = Uniforms(numbers, e.live_values(), 2.0f);
      DeviceArray<float> device_x(Padded(x, e.values()));
      for (float offset : {1.0f, 0.0f}) {
        const auto run = [&](int64_t live, int64_t first) {
          DeviceRows rows(live, e.capacity - first);
          DeviceArray<float> out(e.values() - first * e.width);
          kernels().Norm(KernelBench::Launch(),
                         {.rows = rows.view(),
                          .x = device_x.data() + first * e.width,
                          .weight = {weight.data(), dtype, e.width},
                          .offset = offset,
                          .eps = 1e-6f,
                          .width = e.width,
                          .out = out.data()});
          Finish();
          EXPECT_TRUE(out.CanariesIntact());
          std::vector<float> values = out.Get();
          EXPECT_TRUE(AllUnwritten(
              std::span(values).subspan(static_cast<size_t>(live * e.width))));
          values.resize(static_cast<size_t>(live * e.width));
          return values;
        };
        const std::vector<float> got = run(e.live, 0);
        std::vector<float> want(got.size());
        const auto live = static_cast<int32_t>(e.live);
        cpu().Norm(KernelBench::Launch(),
                   {.rows = {.live = &live, .capacity = e.capacity},
                    .x = x.data(),
                    .weight = {weight.values().data(), DType::kF32, e.width},
                    .offset = offset,
                    .eps = 1e-6f,
                    .width = e.width,
                    .out = want.data()});
        EXPECT_LE(RelativeError(got, std::span<const float>(want)), 2e-6);
        // The last row alone, where alignment may differ.
        const std::vector<float> last = run(1, e.live - 1);
        EXPECT_TRUE(
            SameBits(last, std::vector<float>(got.end() - e.width, got.end())));
      }
    }
  }
}

}  // namespace
}  // namespace signet::backend::gpu
