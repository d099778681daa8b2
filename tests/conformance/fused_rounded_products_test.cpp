// Several products of one rounded input in one call: each leaves the bits of
// its Projection, whatever stands beside it.

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
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

/// A weight of `rows`, and by how many elements it and its output are shifted.
struct Part {
  int64_t rows;
  DType dtype = DType::kBF16;
  int64_t weight_shift = 0;
  int64_t out_shift = 0;
};

class FusedRoundedProductsTest : public ProductTest {
 protected:
  /// The matrices of a call, and the call with other rows and outputs.
  class Products {
   public:
    Products(Numbers& numbers, std::vector<Part> parts, int64_t cols)
        : parts_(std::move(parts)), cols_(cols) {
      for (const Part& part : parts_) {
        weights_.push_back(std::make_unique<Stored>(
            numbers, part.dtype, part.rows * cols + part.weight_shift));
      }
    }
    size_t count() const { return parts_.size(); }
    int64_t cols() const { return cols_; }

    struct Call {
      RoundedProductsArgs args;
      std::vector<std::unique_ptr<DeviceArray<float>>> outs;
    };
    /// With outputs of its own, unwritten.
    Call MakeCall(Rows rows, InputView x) {
      Call call;
      call.args.num_products = static_cast<int>(parts_.size());
      for (size_t p = 0; p < parts_.size(); ++p) {
        const Part& part = parts_[p];
        call.outs.push_back(std::make_unique<DeviceArray<float>>(
            rows.capacity * part.rows + part.out_shift));
        call.args.products[p] = {
            .rows = rows,
            .x = x,
            .weight = {.data =
                           static_cast<unsigned char*>(weights_[p]->data()) +
                           static_cast<size_t>(part.weight_shift) *
                               tensor::SizeOf(part.dtype),
                       .dtype = part.dtype,
                       .rows = part.rows,
                       .cols = cols_},
            .out = call.outs.back()->data() + part.out_shift};
      }
      return call;
    }
    /// Of output `p`, what a call of `live` rows writes.
    std::span<const float> Written(const std::vector<float>& out, size_t p,
                                   int64_t live) const {
      return std::span(out).subspan(static_cast<size_t>(parts_[p].out_shift),
                                    static_cast<size_t>(live * parts_[p].rows));
    }

   private:
    std::vector<Part> parts_;
    int64_t cols_;
    std::vector<std::unique_ptr<Stored>> weights_;
  };

  void Check(Numbers& numbers, Products& products, int64_t capacity,
             int64_t live) {
    SCOPED_TRACE(std::to_string(live) + " of " + std::to_string(capacity) +
                 " rows of " + std::to_string(products.cols()));
    const LaunchKey key = KernelBench::Launch();
    Inputs inputs(DType::kBF16, RoundedInputs(numbers, live * products.cols()),
                  capacity * products.cols());
    DeviceRows rows(live, capacity);
    auto fused = products.MakeCall(rows.view(), inputs.view());
    kernels().RoundedProducts(key, fused.args);
    Finish();
    auto plain = products.MakeCall(rows.view(), inputs.view());
    for (size_t p = 0; p < products.count(); ++p) {
      kernels().Projection(key, plain.args.products[p]);
    }
    Finish();
    for (size_t p = 0; p < products.count(); ++p) {
      SCOPED_TRACE("product " + std::to_string(p));
      // Rows past the live ones and what a shift leaves out stay unwritten.
      const std::vector<float> got = fused.outs[p]->Get();
      EXPECT_TRUE(SameBits(got, plain.outs[p]->Get()));
      EXPECT_TRUE(fused.outs[p]->CanariesIntact());
      const std::span<const float> written = products.Written(got, p, live);
      for (float value : written) ASSERT_FALSE(IsUnwritten(value));
      EXPECT_TRUE(AllUnwritten(std::span(got).first(
          got.size() - products.Written(got, p, capacity).size())));
      EXPECT_TRUE(AllUnwritten(std::span(got).subspan(
          got.size() - products.Written(got, p, capacity - live).size())));
    }
  }
  /// All kernels and cuts of them, the last row tile full or not.
  void CheckCapacities(Numbers& numbers, Products& products) {
    for (int64_t capacity : {9, 16, 17, 64, 100, 300}) {
      Check(numbers, products, capacity, capacity);
      Check(numbers, products, capacity, capacity - 3);
      Check(numbers, products, capacity, 1);
    }
    Check(numbers, products, 16, 0);
    Check(numbers, products, 64, 0);
    Check(numbers, products, 300, 0);
  }
};

std::vector<Part> PartsOf(std::span<const int64_t> rows, DType dtype) {
  std::vector<Part> parts;
  for (int64_t r : rows) parts.push_back({.rows = r, .dtype = dtype});
  return parts;
}

constexpr std::array<int64_t, 5> kUnlike = {1, 32, 200, 512, 4096};

TEST_F(FusedRoundedProductsTest, PartsOfEverySizeLeaveTheBitsOfTheirProducts) {
  Numbers numbers(1001);
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    for (int64_t cols : {64, 2048, 333}) {
      SCOPED_TRACE(std::string(tensor::Name(dtype)));
      Products products(numbers, PartsOf(kUnlike, dtype), cols);
      CheckCapacities(numbers, products);
    }
  }
}

// Those that share a launch: as many as one takes, rows that fill no tile of
// theirs, the widest not the first.
TEST_F(FusedRoundedProductsTest, PartsAlikeLeaveTheBitsOfTheirProducts) {
  Numbers numbers(1002);
  for (const auto& rows :
       std::vector<std::vector<int64_t>>{{33, 130, 7, 130, 257, 1},
                                         {2048, 1999, 2050, 2048},
                                         {8192, 8192},
                                         {4096, 512, 512},
                                         {6144, 6147, 6144}}) {
    Products products(numbers, PartsOf(rows, DType::kBF16), 520);
    CheckCapacities(numbers, products);
  }
}

TEST_F(FusedRoundedProductsTest,
       PartsOfOtherDtypesAndAddressesBesideEachOther) {
  Numbers numbers(1003);
  Products products(numbers,
                    {{.rows = 200},
                     {.rows = 200, .weight_shift = 1},
                     {.rows = 200, .out_shift = 1},
                     {.rows = 200, .dtype = DType::kF32},
                     {.rows = 200, .dtype = DType::kF16},
                     {.rows = 200}},
                    264);
  CheckCapacities(numbers, products);
}

// A product has the bits it has alone, where the ones before it are of a wider
// cut: only its own shape chooses.
TEST_F(FusedRoundedProductsTest, TheOrderOfPartsChangesNoBit) {
  Numbers numbers(1004);
  const std::array<int64_t, 4> rows = {4096, 32, 4096, 32};
  Products products(numbers, PartsOf(rows, DType::kBF16), 2048);
  CheckCapacities(numbers, products);
}

}  // namespace
}  // namespace signet::backend::gpu
