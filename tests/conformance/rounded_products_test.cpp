// Dense products of inputs in bf16 against the CPU's of the same values, every
// family of kernels. ProductTest says how close.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/product.h"
#include "backend/kernel_bench.h"
#include "tests/conformance/product_testing.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using backend::testing::KernelBench;
using tensor::DType;

std::span<const float> Slice(const std::vector<float>& values, int64_t begin,
                             int64_t count) {
  return std::span(values).subspan(static_cast<size_t>(begin),
                                   static_cast<size_t>(count));
}

class RoundedProductsTest : public ProductTest {
 protected:
  /// The product of rows [first, first + count) on the CPU.
  std::vector<float> Want(const std::vector<float>& x, Stored& weight,
                          int64_t rows, int64_t cols, int64_t first,
                          int64_t count) {
    const std::vector<float> rounded = weight.Rounded();
    const int32_t live = static_cast<int32_t>(count);
    std::vector<float> out(static_cast<size_t>(count * rows));
    cpu().Projection(KernelBench::Launch(),
                     {.rows = {.live = &live, .capacity = count},
                      .x = {.data = x.data() + first * cols},
                      .weight = {.data = rounded.data(),
                                 .dtype = DType::kF32,
                                 .rows = rows,
                                 .cols = cols},
                      .out = out.data()});
    return out;
  }
  /// All of `out`: rows past the live ones are what they were.
  std::vector<float> Run(const std::vector<float>& x, Stored& weight,
                         const ProductShape& shape) {
    Inputs inputs(DType::kBF16, x, shape.capacity * shape.cols);
    DeviceRows rows(shape.live, shape.capacity);
    DeviceArray<float> out(shape.capacity * shape.rows);
    kernels().Projection(KernelBench::Launch(),
                         {.rows = rows.view(),
                          .x = inputs.view(),
                          .weight = {.data = weight.data(),
                                     .dtype = shape.dtype,
                                     .rows = shape.rows,
                                     .cols = shape.cols},
                          .out = out.data()});
    Finish();
    EXPECT_TRUE(out.CanariesIntact());
    return out.Get();
  }
  /// One run, checked: up to 48 rows by value, all of them for being written.
  void Check(const ProductShape& shape, uint64_t seed) {
    SCOPED_TRACE(NameOf(shape) + ", seed " + std::to_string(seed));
    Numbers numbers(seed);
    Stored weight(numbers, shape.dtype, shape.rows * shape.cols);
    const std::vector<float> x =
        RoundedInputs(numbers, shape.live * shape.cols);
    const std::vector<float> got = Run(x, weight, shape);
    EXPECT_TRUE(
        AllUnwritten(Slice(got, shape.live * shape.rows,
                           (shape.capacity - shape.live) * shape.rows)));
    EXPECT_TRUE(std::ranges::none_of(Slice(got, 0, shape.live * shape.rows),
                                     IsUnwritten));
    const int64_t part = std::min<int64_t>(24, shape.live);
    for (int64_t first : {int64_t{0}, shape.live - part}) {
      const std::vector<float> want =
          Want(x, weight, shape.rows, shape.cols, first, part);
      EXPECT_LE(RelativeError(Slice(got, first * shape.rows, part * shape.rows),
                              std::span<const float>(want)),
                kRoundedBound);
    }
    EXPECT_TRUE(SameBits(got, Run(x, weight, shape)));
  }
};

TEST_F(RoundedProductsTest, FewRowsMatchTheCpu) {
  uint64_t seed = 100;
  for (const ProductShape& shape :
       std::vector<ProductShape>{{1, 1, 1, 8},
                                 {1, 1, 33, 16},
                                 {3, 2, 22, 24},
                                 {8, 8, 300, 40},
                                 {9, 7, 64, 64},
                                 {16, 16, 1000, 72},
                                 {16, 5, 257, 520},
                                 {13, 13, 2048, 1000},
                                 {16, 15, 4096, 264},
                                 {16, 16, 8200, 128},
                                 {16, 1, 2050, 4104}}) {
    Check(shape, ++seed);
  }
}

TEST_F(RoundedProductsTest, ManyRowsMatchTheCpu) {
  uint64_t seed = 200;
  for (const ProductShape& shape :
       std::vector<ProductShape>{{17, 17, 1, 8},
                                 {17, 3, 33, 64},
                                 {20, 20, 130, 40},
                                 {33, 32, 512, 200},
                                 {64, 63, 2048, 520},
                                 {64, 50, 1000, 2048},
                                 {64, 64, 6200, 264},
                                 {64, 33, 6144, 1032},
                                 {65, 65, 22, 128},
                                 {100, 99, 257, 1096},
                                 {128, 128, 128, 2056},
                                 {129, 129, 300, 72},
                                 {200, 130, 1000, 600},
                                 {300, 257, 514, 1024},
                                 {1000, 1000, 2000, 264},
                                 {4097, 77, 130, 512},
                                 {4097, 4097, 36, 24}}) {
    Check(shape, ++seed);
  }
}

// Each length of a cluster, with a last block that has little or nothing.
TEST_F(RoundedProductsTest, BlocksOfAClusterAddUp) {
  uint64_t seed = 300;
  for (int64_t rows : {17, 64, 128}) {
    for (int64_t weight_rows : {48, 1999, 2048}) {
      for (int64_t cols : {512, 1032, 1088, 2048, 2056, 4096}) {
        Check({rows, rows, weight_rows, cols}, ++seed);
      }
    }
  }
  Check({64, 64, 8192, 2056}, ++seed);
  Check({64, 64, 12288, 2048}, ++seed);
  Check({256, 256, 8192, 1096}, ++seed);
}

TEST_F(RoundedProductsTest, OtherWeightsAndOddColsMatchTheCpu) {
  uint64_t seed = 400;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    Check({1, 1, 1, 1, dtype}, ++seed);
    Check({5, 4, 22, 44, dtype}, ++seed);
    Check({40, 33, 70, 31, dtype}, ++seed);
    Check({70, 70, 129, 333, dtype}, ++seed);
  }
  Check({12, 12, 64, 256, DType::kF32}, ++seed);
  Check({130, 100, 64, 256, DType::kF16}, ++seed);
}

TEST_F(RoundedProductsTest, AddressesNeedNotBeAligned) {
  Numbers numbers(500);
  const ProductShape shape = {20, 18, 50, 64};
  Stored weight(numbers, DType::kBF16, shape.rows * shape.cols + 1);
  const std::vector<float> x = RoundedInputs(numbers, shape.live * shape.cols);
  Inputs inputs(DType::kBF16, x, shape.capacity * shape.cols);
  DeviceRows rows(shape.live, shape.capacity);
  DeviceArray<float> out(shape.capacity * shape.rows + 1);
  kernels().Projection(
      KernelBench::Launch(),
      {.rows = rows.view(),
       .x = inputs.view(),
       .weight = {.data = static_cast<uint16_t*>(weight.data()) + 1,
                  .dtype = DType::kBF16,
                  .rows = shape.rows,
                  .cols = shape.cols},
       .out = out.data() + 1});
  Finish();
  const std::vector<float> shifted(weight.values().begin() + 1,
                                   weight.values().end());
  Stored aligned(DType::kBF16, shifted);
  const std::vector<float> want =
      Want(x, aligned, shape.rows, shape.cols, 0, shape.live);
  const std::vector<float> got = out.Get();
  EXPECT_LE(RelativeError(Slice(got, 1, shape.live * shape.rows),
                          std::span<const float>(want)),
            kFloatBound);
  EXPECT_TRUE(IsUnwritten(got[0]));

  // Outputs alone: the tensor cores serve them too.
  DeviceArray<float> again(shape.capacity * shape.rows + 1);
  kernels().Projection(KernelBench::Launch(),
                       {.rows = rows.view(),
                        .x = inputs.view(),
                        .weight = {.data = aligned.data(),
                                   .dtype = DType::kBF16,
                                   .rows = shape.rows,
                                   .cols = shape.cols},
                        .out = again.data() + 1});
  Finish();
  EXPECT_LE(RelativeError(Slice(again.Get(), 1, shape.live * shape.rows),
                          std::span<const float>(want)),
            kRoundedBound);
  EXPECT_TRUE(again.CanariesIntact());
}

TEST_F(RoundedProductsTest, NeighboursAndLiveRowsChangeNoBit) {
  uint64_t seed = 600;
  for (const ProductShape& shape :
       std::vector<ProductShape>{{16, 16, 300, 1000},
                                 {64, 64, 1000, 2048},
                                 {64, 64, 6144, 520},
                                 {128, 128, 300, 1096},
                                 {1000, 1000, 700, 264},
                                 {70, 70, 40, 33}}) {
    SCOPED_TRACE(NameOf(shape) + ", seed " + std::to_string(++seed));
    Numbers numbers(seed);
    Stored weight(numbers, DType::kBF16, shape.rows * shape.cols);
    const std::vector<float> x =
        RoundedInputs(numbers, shape.live * shape.cols);
    const std::vector<float> all = Run(x, weight, shape);
    for (int64_t live : {int64_t{1}, shape.live / 2 + 1}) {
      // The last of the live rows is another one, the ones before it are new.
      const int64_t row = live - 1;
      const int64_t source = shape.live - 1;
      std::vector<float> other = RoundedInputs(numbers, live * shape.cols);
      std::ranges::copy(Slice(x, source * shape.cols, shape.cols),
                        other.begin() + row * shape.cols);
      const std::vector<float> got =
          Run(other, weight,
              {shape.capacity, live, shape.rows, shape.cols, shape.dtype});
      EXPECT_TRUE(
          std::ranges::equal(Slice(got, row * shape.rows, shape.rows),
                             Slice(all, source * shape.rows, shape.rows)));
      EXPECT_TRUE(AllUnwritten(
          Slice(got, live * shape.rows, (shape.capacity - live) * shape.rows)));
    }
  }
}

TEST_F(RoundedProductsTest, NoLiveRowsWriteNothing) {
  Numbers numbers(700);
  for (const ProductShape& shape : std::vector<ProductShape>{{16, 0, 100, 64},
                                                             {64, 0, 100, 2048},
                                                             {300, 0, 600, 64},
                                                             {9, 0, 10, 3}}) {
    Stored weight(numbers, DType::kBF16, shape.rows * shape.cols);
    EXPECT_TRUE(AllUnwritten(Run({}, weight, shape)));
  }
}

TEST_F(RoundedProductsTest, LogitsOfTheLastLiveRowAndOfAll) {
  uint64_t seed = 800;
  for (const ProductShape& shape :
       std::vector<ProductShape>{{16, 11, 5000, 264},
                                 {300, 270, 3001, 128},
                                 {5, 4, 77, 45},
                                 {300, 1, 77, 64},
                                 {32, 0, 77, 64}}) {
    SCOPED_TRACE(NameOf(shape) + ", seed " + std::to_string(++seed));
    Numbers numbers(seed);
    Stored weight(numbers, DType::kBF16, shape.rows * shape.cols);
    const std::vector<float> x =
        RoundedInputs(numbers, shape.live * shape.cols);
    Inputs inputs(DType::kBF16, x, shape.capacity * shape.cols);
    DeviceRows rows(shape.live, shape.capacity);
    DeviceArray<float> last(shape.rows);
    DeviceArray<float> all(shape.capacity * shape.rows);
    LogitsArgs args = {.rows = rows.view(),
                       .which = LogitRows::kLast,
                       .x = inputs.view(),
                       .weight = {.data = weight.data(),
                                  .dtype = DType::kBF16,
                                  .rows = shape.rows,
                                  .cols = shape.cols},
                       .out = last.data()};
    kernels().Logits(KernelBench::Launch(), args);
    args.which = LogitRows::kAll;
    args.out = all.data();
    kernels().Logits(KernelBench::Launch(), args);
    Finish();
    EXPECT_TRUE(last.CanariesIntact() && all.CanariesIntact());
    if (shape.live == 0) {
      EXPECT_TRUE(AllUnwritten(last.Get()) && AllUnwritten(all.Get()));
      continue;
    }
    const std::vector<float> want =
        Want(x, weight, shape.rows, shape.cols, shape.live - 1, 1);
    const std::vector<float> got_all = all.Get();
    EXPECT_LE(RelativeError(last.Get(), std::span<const float>(want)),
              kRoundedBound);
    const auto last_of_all =
        Slice(got_all, (shape.live - 1) * shape.rows, shape.rows);
    EXPECT_TRUE(SameBits(last.Get(), std::vector<float>(last_of_all.begin(),
                                                        last_of_all.end())));
    EXPECT_TRUE(
        AllUnwritten(Slice(got_all, shape.live * shape.rows,
                           (shape.capacity - shape.live) * shape.rows)));
  }
}

TEST_F(RoundedProductsTest, FlagshipDecodeMatchesTheCpu) {
  uint64_t seed = 900;
  Check({16, 16, 8192, 2048}, ++seed);
  Check({16, 13, 2048, 4096}, ++seed);
  Check({64, 64, 8192, 2048}, ++seed);
  Check({64, 61, 2048, 4096}, ++seed);
  Check({32, 32, 512, 2048}, ++seed);
  Check({64, 64, 1, 2048}, ++seed);
}

TEST_F(RoundedProductsTest, FlagshipPrefillMatchesTheCpu) {
  Check({2048, 2048, 8192, 2048}, 950);
  Check({512, 400, 2048, 4096}, 951);
}

}  // namespace
}  // namespace signet::backend::gpu
