// Products of f32 inputs against the CPU's of the same values: every path, step
// and batch that ChooseFloat may choose.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/float_config.h"
#include "backend/kernel_bench.h"
#include "tests/conformance/product_testing.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using backend::testing::KernelBench;
using tensor::DType;

std::vector<float> Uniforms(Numbers& numbers, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = numbers.Uniform();
  return values;
}

std::span<const float> Row(const std::vector<float>& values, int64_t row,
                           int64_t width) {
  return std::span(values).subspan(static_cast<size_t>(row * width),
                                   static_cast<size_t>(width));
}

bool SameRow(std::span<const float> a, std::span<const float> b) {
  return SameBits(std::vector<float>(a.begin(), a.end()),
                  std::vector<float>(b.begin(), b.end()));
}

class FloatProductsTest : public ProductTest {
 protected:
  std::vector<float> Want(std::span<const float> x, const Stored& weight,
                          int64_t count, int64_t rows, int64_t cols) {
    const auto live = static_cast<int32_t>(count);
    std::vector<float> out(static_cast<size_t>(count * rows));
    cpu().Projection(KernelBench::Launch(),
                     {.rows = {.live = &live, .capacity = count},
                      .x = {.data = x.data()},
                      .weight = {.data = weight.values().data(),
                                 .dtype = DType::kF32,
                                 .rows = rows,
                                 .cols = cols},
                      .out = out.data()});
    return out;
  }
  /// All of the output of a call with weights at `weight`; checks that rows
  /// past the live ones are left alone.
  std::vector<float> Run(std::span<const float> x, const void* weight,
                         const ProductShape& shape) {
    Inputs inputs(DType::kF32,
                  x.subspan(0, static_cast<size_t>(shape.live * shape.cols)),
                  shape.capacity * shape.cols);
    DeviceRows rows(shape.live, shape.capacity);
    DeviceArray<float> out(shape.capacity * shape.rows);
    kernels().Projection(KernelBench::Launch(),
                         {.rows = rows.view(),
                          .x = inputs.view(),
                          .weight = {.data = weight,
                                     .dtype = shape.dtype,
                                     .rows = shape.rows,
                                     .cols = shape.cols},
                          .out = out.data()});
    Finish();
    EXPECT_TRUE(out.CanariesIntact());
    std::vector<float> values = out.Get();
    EXPECT_TRUE(AllUnwritten(std::span(values).subspan(
        static_cast<size_t>(shape.live * shape.rows))));
    values.resize(static_cast<size_t>(shape.live * shape.rows));
    return values;
  }
};

TEST_F(FloatProductsTest, AgreeWithTheCpu) {
  const uint64_t seed = 101;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Numbers numbers(seed);
  const ProductShape shapes[] = {
      // Small and odd, every dtype.
      {1, 1, 44, 22, DType::kF32},
      {3, 2, 22, 44},
      {1, 1, 9, 32},
      {8, 8, 33, 2047, DType::kF32},
      {1, 1, 33, 2050},
      {2, 1, 33, 2048, DType::kF16},
      {9, 9, 5, 1, DType::kF16},
      // One warp a row.
      {1, 1, 1, 8},
      {2, 2, 64, 512},
      {5, 5, 37, 1024},
      {8, 7, 50, 264},
      // Eight warps a row; groups cut short by every number of rows.
      {1, 1, 1, 2048},
      {1, 1, 2, 2048},
      {1, 1, 5, 2048},
      {2, 2, 7, 2048},
      {4, 4, 11, 2048},
      {8, 7, 100, 2048},
      {1, 1, 100, 1032},
      {3, 3, 90, 1544},
      // The flagship's and the dense model's lengths; as many rows as make
      // each of the steps the choice, and more than a wave of blocks.
      {1, 1, 4221, 2048},
      {1, 1, 4700, 2048},
      {1, 1, 1281, 2048},
      {2, 2, 3165, 2048},
      {2, 2, 500, 2048},
      {4, 3, 2109, 2048},
      {8, 8, 2301, 2048},
      // On tensor cores: a step, a cut one, several steps a block.
      {2, 2, 1, 2048},
      {5, 5, 33, 2048},
      {6, 6, 4230, 2048},
      {3, 3, 8500, 2048},
      {7, 4, 12700, 2048},
      {1, 1, 2048, 4096},
      {2, 2, 1030, 4096},
      {4, 4, 530, 4096},
      {8, 5, 64, 5120},
      {4, 4, 64, 5120},
      {4, 4, 2112, 5120},
      {2, 2, 800, 5120},
      {1, 1, 1100, 5120},
      {1, 1, 1300, 17408},
      {2, 2, 600, 17408},
      // Inputs too large for shared memory.
      {4, 3, 24, 17408},
      {8, 8, 16, 17408},
      {2, 2, 12, 40960},
      {1, 1, 12, 65536},
      // More rows than a block takes.
      {17, 13, 30, 200},
      {40, 33, 70, 2048},
      {4097, 4001, 9, 40, DType::kF16},
      // Many rows on tensor cores: tiles whole and cut, on both sides.
      {9, 9, 16, 64},
      {64, 40, 17, 128},
      {33, 31, 300, 2048},
      {100, 100, 200, 192},
      {512, 500, 256, 2048},
      {600, 590, 256, 2048},
      {2048, 2041, 300, 320},
      {6400, 6390, 300, 64},
      {600, 0, 256, 2048},
      {3, 0, 16, 2048},
  };
  for (const ProductShape& shape : shapes) {
    SCOPED_TRACE(NameOf(shape));
    Stored weight(numbers, shape.dtype, shape.rows * shape.cols);
    const std::vector<float> x = Uniforms(numbers, shape.live * shape.cols);
    const std::vector<float> got = Run(x, weight.data(), shape);
    EXPECT_TRUE(SameBits(got, Run(x, weight.data(), shape)));
    if (shape.live == 0) continue;
    const std::vector<float> want =
        Want(x, weight, shape.live, shape.rows, shape.cols);
    EXPECT_LE(RelativeError(got, std::span<const float>(want)), kFloatBound);
  }
}

// Launches made for one row, for a few, and for many, take sums of their own
// orders (float_config.h).
TEST_F(FloatProductsTest, ARowDependsOnNothingBesideIt) {
  Numbers numbers(102);
  for (int64_t cols : {40, 512, 2048, 4096, 5120, 17408}) {
    SCOPED_TRACE(cols);
    const int64_t rows = 37;
    const int64_t count = 20;
    Stored weight(numbers, DType::kBF16, rows * cols);
    const std::vector<float> x = Uniforms(numbers, count * cols);
    const auto alone_of = [&](int64_t capacity) {
      std::vector<std::vector<float>> alone;
      for (int64_t r = 0; r < count; ++r) {
        alone.push_back(
            Run(Row(x, r, cols), weight.data(), {capacity, 1, rows, cols}));
      }
      return alone;
    };
    const auto few = alone_of(2);
    const auto many = alone_of(9);
    for (const auto& [capacity, live] : {std::pair<int64_t, int64_t>{2, 2},
                                         {3, 3},
                                         {4, 2},
                                         {8, 8},
                                         {8, 5},
                                         {9, 9},
                                         {20, 20},
                                         {20, 9},
                                         {70, 20}}) {
      const bool is_many = IsManyRows(capacity, rows, cols);
      if (!is_many && IsFewRows(2, cols) != IsFewRows(capacity, cols)) continue;
      const auto& alone = is_many ? many : few;
      const std::vector<float> got =
          Run(x, weight.data(), {capacity, live, rows, cols});
      for (int64_t r = 0; r < live; ++r) {
        EXPECT_TRUE(SameRow(Row(got, r, rows), alone[static_cast<size_t>(r)]))
            << "row " << r << " of " << live << " of " << capacity;
      }
    }
  }
}

TEST_F(FloatProductsTest, TilesOfManyRowsGiveTheSameBits) {
  Numbers numbers(106);
  const int64_t rows = 300;
  const int64_t live = 70;
  ASSERT_TRUE(ChooseManyTile(live, rows) == kSmallTile);
  ASSERT_TRUE(ChooseManyTile(600, rows) == kMiddleTile);
  ASSERT_TRUE(ChooseManyTile(6400, rows) == kLargeTile);
  for (int64_t cols : {64, 192, 2048}) {
    SCOPED_TRACE(cols);
    Stored weight(numbers, DType::kBF16, rows * cols);
    const std::vector<float> x = Uniforms(numbers, live * cols);
    const std::vector<float> want =
        Run(x, weight.data(), {live, live, rows, cols});
    for (int64_t capacity : {600, 6400}) {
      EXPECT_TRUE(
          SameBits(Run(x, weight.data(), {capacity, live, rows, cols}), want))
          << capacity;
    }
  }
}

// Each weight row has a single 1: out is the input to the last bit, though the
// tensor cores take it in pieces.
TEST_F(FloatProductsTest, ASingleOneGivesTheInput) {
  Numbers numbers(105);
  for (int64_t cols : {512, 2048, 4096}) {
    for (int64_t capacity : {1, 2, 5, 8, 45}) {
      const ProductShape shape = {capacity, capacity, 61, cols};
      SCOPED_TRACE(NameOf(shape));
      std::vector<float> ones(static_cast<size_t>(shape.rows * cols), 0.0f);
      std::vector<int64_t> at;
      for (int64_t r = 0; r < shape.rows; ++r) {
        at.push_back(numbers.Below(cols));
        ones[static_cast<size_t>(r * cols + at.back())] = 1.0f;
      }
      Stored weight(DType::kBF16, ones);
      // All 24 bits of a number, large or small.
      std::vector<float> x = Uniforms(numbers, capacity * cols);
      for (float& value : x) {
        value = std::ldexp(value, static_cast<int>(numbers.Below(60)) - 30);
      }
      const std::vector<float> got = Run(x, weight.data(), shape);
      for (int64_t n = 0; n < capacity; ++n) {
        for (int64_t r = 0; r < shape.rows; ++r) {
          ASSERT_EQ(
              got[static_cast<size_t>(n * shape.rows + r)],
              x[static_cast<size_t>(n * cols + at[static_cast<size_t>(r)])])
              << "row " << n << ", " << r;
        }
      }
    }
  }
}

TEST_F(FloatProductsTest, AlignmentChangesNoBit) {
  Numbers numbers(103);
  for (int64_t cols : {64, 2048, 5120}) {
    for (int64_t capacity : {1, 3, 8}) {
      // The tensor cores want what every plan gives: aligned matrices.
      if (IsFewRows(capacity, cols)) continue;
      const ProductShape shape = {capacity, capacity, 45, cols};
      SCOPED_TRACE(NameOf(shape));
      Stored weight(numbers, DType::kBF16, shape.rows * cols);
      const std::vector<float> x = Uniforms(numbers, capacity * cols);
      // The same matrix one element further on.
      std::vector<uint16_t> moved = {0};
      for (float value : weight.values()) moved.push_back(BF16Bits(value));
      DeviceArray<uint16_t> odd(moved);
      EXPECT_TRUE(SameBits(Run(x, weight.data(), shape),
                           Run(x, odd.data() + 1, shape)));
    }
  }
}

TEST_F(FloatProductsTest, TheLastRowIsTheLastLiveOne) {
  Numbers numbers(104);
  for (const ProductShape& shape : {ProductShape{1, 1, 300, 2048},
                                    {6, 4, 300, 2048},
                                    {70, 65, 31, 44},
                                    {70, 65, 31, 128},
                                    {9, 0, 20, 2048},
                                    {5, 3, 20, 96, DType::kF32}}) {
    SCOPED_TRACE(NameOf(shape));
    Stored weight(numbers, shape.dtype, shape.rows * shape.cols);
    const std::vector<float> x = Uniforms(numbers, shape.live * shape.cols);
    Inputs inputs(DType::kF32, x, shape.capacity * shape.cols);
    DeviceRows rows(shape.live, shape.capacity);
    DeviceArray<float> out(shape.rows);
    kernels().Logits(KernelBench::Launch(), {.rows = rows.view(),
                                             .which = LogitRows::kLast,
                                             .x = inputs.view(),
                                             .weight = {.data = weight.data(),
                                                        .dtype = shape.dtype,
                                                        .rows = shape.rows,
                                                        .cols = shape.cols},
                                             .out = out.data()});
    Finish();
    EXPECT_TRUE(out.CanariesIntact());
    if (shape.live == 0) {
      EXPECT_TRUE(AllUnwritten(out.Get()));
      continue;
    }
    // In the bits it has where every row is multiplied.
    const std::vector<float> all = Run(x, weight.data(), shape);
    EXPECT_TRUE(SameRow(out.Get(), Row(all, shape.live - 1, shape.rows)));
  }
}

}  // namespace
}  // namespace signet::backend::gpu
