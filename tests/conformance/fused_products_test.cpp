// Products with what stands before and after them: a fused launch leaves the
// bits of its steps, and they agree with the CPU's.

#include <gtest/gtest.h>

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

struct NormedCase {
  int64_t capacity;
  int64_t live;
  int64_t hidden;
  std::vector<int64_t> rows;  // of each product
  bool activated = false;     // the last two are gate and up
  bool keep_normed = false;
  DType dtype = DType::kBF16;
  DType norm_dtype = DType::kBF16;
};

std::string NameOf(const NormedCase& c) {
  std::string name = std::to_string(c.live) + " of " +
                     std::to_string(c.capacity) + " rows of " +
                     std::to_string(c.hidden) + ",";
  for (int64_t rows : c.rows) name += " " + std::to_string(rows);
  return name + (c.activated ? ", activated" : "") +
         (c.keep_normed ? ", normed kept" : "");
}

std::vector<NormedCase> NormedCases() {
  std::vector<NormedCase> cases;
  for (const auto& [capacity, live] :
       {std::pair<int64_t, int64_t>{1, 1}, {2, 2}, {3, 3}, {4, 2}, {8, 7}}) {
    // A DeltaNet layer, an attention layer and the front of a routed block of
    // the flagship, the first with fewer rows.
    cases.push_back({capacity, live, 2048, {2048, 1024, 32, 32}});
    cases.push_back({capacity, live, 2048, {2300, 512, 512}});
    cases.push_back({capacity, live, 2048, {256, 1, 512, 512}, true, true});
    // The dense model's.
    cases.push_back({capacity, live, 5120, {600, 600}, true});
    cases.push_back({capacity, live, 5120, {300}, false, true});
    // Small and odd ones.
    cases.push_back({capacity, live, 40, {7, 1, 22, 3, 5, 44}});
    cases.push_back({capacity, live, 512, {9, 13, 13}, true, true});
    cases.push_back({capacity, live, 1544, {30, 5, 5}, true});
    cases.push_back(
        {capacity, live, 32, {11}, false, false, DType::kBF16, DType::kF32});
    // A norm stored otherwise changes no bit of the products after it.
    cases.push_back({capacity,
                     live,
                     2048,
                     {64, 1, 33, 33},
                     true,
                     true,
                     DType::kBF16,
                     DType::kF32});
    // Not fused: what the vector path cannot take.
    cases.push_back({capacity, live, 44, {22, 9, 9}, true, true});
    cases.push_back({capacity, live, 64, {22, 9}, false, true, DType::kF32});
    cases.push_back({capacity,
                     live,
                     2050,
                     {5, 3, 3},
                     true,
                     false,
                     DType::kF16,
                     DType::kF16});
  }
  cases.push_back({1, 1, 2048, {8192, 4096, 32, 32}});
  cases.push_back({1, 1, 2048, {8192, 512, 512}});
  // More than a round of blocks, few rows.
  cases.push_back({2, 2, 2048, {4096, 512, 2200, 2200}, true, true});
  cases.push_back({8, 6, 2048, {8192, 4096, 32, 32}});
  cases.push_back({2, 0, 2048, {64, 8, 8}, true, true});
  return cases;
}

class FusedProductsTest : public ProductTest {
 protected:
  /// A NormProducts call with outputs of its own.
  struct Call {
    Call(const NormedCase& c, Rows rows, Stored& norm_weight, const float* x,
         std::vector<std::unique_ptr<Stored>>& weights)
        : normed(c.capacity * c.hidden),
          act(c.capacity * (c.activated ? c.rows.back() : 1)) {
      args.norm = {.rows = rows,
                   .x = x,
                   .weight = {norm_weight.data(), c.norm_dtype, c.hidden},
                   .width = c.hidden,
                   .out = normed.data()};
      args.num_products = static_cast<int>(c.rows.size());
      args.keep_normed = c.keep_normed;
      args.activated = c.activated;
      for (size_t p = 0; p < c.rows.size(); ++p) {
        outs.push_back(
            std::make_unique<DeviceArray<float>>(c.capacity * c.rows[p]));
        args.products[p] = {.rows = rows,
                            .x = {.data = normed.data()},
                            .weight = {.data = weights[p]->data(),
                                       .dtype = c.dtype,
                                       .rows = c.rows[p],
                                       .cols = c.hidden},
                            .out = outs.back()->data()};
      }
      if (c.activated) {
        const size_t up = c.rows.size() - 1;
        args.activation = {.rows = rows,
                           .multiple = 1,
                           .width = c.rows.back(),
                           .gate = outs[up - 1]->data(),
                           .up = outs[up]->data(),
                           .out = act.data()};
      }
    }
    DeviceArray<float> normed;
    DeviceArray<float> act;
    std::vector<std::unique_ptr<DeviceArray<float>>> outs;
    NormProductsArgs args;
  };

  /// Live rows of `width`; what follows them must be as it was.
  static std::vector<float> Live(const DeviceArray<float>& array, int64_t live,
                                 int64_t width) {
    EXPECT_TRUE(array.CanariesIntact());
    std::vector<float> values = array.Get();
    const auto count = static_cast<size_t>(live * width);
    EXPECT_TRUE(AllUnwritten(std::span(values).subspan(count)));
    values.resize(count);
    return values;
  }
};

TEST_F(FusedProductsTest, NormAndProductsLeaveTheBitsOfTheirSteps) {
  Numbers numbers(601);
  const LaunchKey key = KernelBench::Launch();
  for (const NormedCase& c : NormedCases()) {
    SCOPED_TRACE(NameOf(c));
    Stored norm_weight(numbers, c.norm_dtype, c.hidden);
    std::vector<std::unique_ptr<Stored>> weights;
    for (int64_t rows : c.rows) {
      weights.push_back(
          std::make_unique<Stored>(numbers, c.dtype, rows * c.hidden));
    }
    std::vector<float> x(static_cast<size_t>(c.live * c.hidden));
    for (float& value : x) value = 2.0f * numbers.Uniform();
    Inputs inputs(DType::kF32, x, c.capacity * c.hidden);
    const auto* device_x = static_cast<const float*>(inputs.view().data);
    DeviceRows rows(c.live, c.capacity);

    Call fused(c, rows.view(), norm_weight, device_x, weights);
    kernels().NormProducts(key, fused.args);
    Finish();
    Call again(c, rows.view(), norm_weight, device_x, weights);
    kernels().NormProducts(key, again.args);
    Finish();
    Call plain(c, rows.view(), norm_weight, device_x, weights);
    kernels().Norm(key, plain.args.norm);
    for (int p = 0; p < plain.args.num_products; ++p) {
      kernels().Projection(key, plain.args.products[static_cast<size_t>(p)]);
    }
    if (c.activated) kernels().Activation(key, plain.args.activation);
    Finish();

    const std::vector<float> normed = Live(plain.normed, c.live, c.hidden);
    if (c.keep_normed) {
      EXPECT_TRUE(SameBits(Live(fused.normed, c.live, c.hidden), normed));
    }
    const size_t whole = c.rows.size() - (c.activated ? 2 : 0);
    for (size_t p = 0; p < whole; ++p) {
      const std::vector<float> want = Live(*plain.outs[p], c.live, c.rows[p]);
      EXPECT_TRUE(SameBits(Live(*fused.outs[p], c.live, c.rows[p]), want))
          << "product " << p;
      EXPECT_TRUE(SameBits(Live(*again.outs[p], c.live, c.rows[p]), want))
          << "product " << p;
    }
    if (c.activated) {
      const std::vector<float> want = Live(plain.act, c.live, c.rows.back());
      EXPECT_TRUE(SameBits(Live(fused.act, c.live, c.rows.back()), want));
      EXPECT_TRUE(SameBits(Live(again.act, c.live, c.rows.back()), want));
    }
    if (c.live == 0) continue;

    // The first product against the CPU's, norm and all.
    const auto live = static_cast<int32_t>(c.live);
    const Rows host = {.live = &live, .capacity = c.capacity};
    std::vector<float> host_normed(x.size());
    cpu().Norm(key,
               {.rows = host,
                .x = x.data(),
                .weight = {norm_weight.values().data(), DType::kF32, c.hidden},
                .width = c.hidden,
                .out = host_normed.data()});
    std::vector<float> host_out(static_cast<size_t>(c.live * c.rows[0]));
    cpu().Projection(key, {.rows = host,
                           .x = {.data = host_normed.data()},
                           .weight = {.data = weights[0]->values().data(),
                                      .dtype = DType::kF32,
                                      .rows = c.rows[0],
                                      .cols = c.hidden},
                           .out = host_out.data()});
    EXPECT_LE(RelativeError(Live(*plain.outs[0], c.live, c.rows[0]),
                            std::span<const float>(host_out)),
              kFloatBound);
  }
}

TEST_F(FusedProductsTest, AProductAndAResidualLeaveTheBitsOfTheirSteps) {
  struct AddCase {
    int64_t capacity;
    int64_t live;
    int64_t rows;
    int64_t cols;
    DType dtype = DType::kBF16;
  };
  const AddCase cases[] = {{1, 1, 2048, 4096},
                           {2, 2, 2048, 4096},
                           {4, 3, 600, 4096},
                           {8, 8, 300, 4096},
                           {1, 1, 5120, 6144},
                           {1, 1, 700, 17408},
                           {2, 2, 130, 17408},
                           {4, 4, 33, 17408},
                           {8, 7, 20, 17408},
                           {1, 1, 9, 32},
                           {3, 2, 44, 22},
                           {5, 4, 31, 512},
                           {2, 2, 7, 2050},
                           {8, 8, 2, 2048},
                           {3, 3, 5000, 2048},
                           {8, 5, 2048, 2048},
                           {1, 1, 33, 64, DType::kF32},
                           {4, 1, 5, 100, DType::kF16},
                           {2, 0, 8, 64}};
  Numbers numbers(602);
  const LaunchKey key = KernelBench::Launch();
  for (const AddCase& c : cases) {
    SCOPED_TRACE(std::to_string(c.live) + " of " + std::to_string(c.capacity) +
                 " rows, " + std::to_string(c.rows) + " x " +
                 std::to_string(c.cols));
    Stored weight(numbers, c.dtype, c.rows * c.cols);
    std::vector<float> x(static_cast<size_t>(c.live * c.cols));
    for (float& value : x) value = numbers.Uniform();
    std::vector<float> residual(static_cast<size_t>(c.live * c.rows));
    for (float& value : residual) value = numbers.Uniform();
    Inputs inputs(DType::kF32, x, c.capacity * c.cols);
    DeviceRows rows(c.live, c.capacity);
    const auto run = [&](bool fused, bool in_place) {
      DeviceArray<float> from(c.capacity * c.rows);
      from.Set(residual);
      DeviceArray<float> product(c.capacity * c.rows);
      DeviceArray<float> out(c.capacity * c.rows);
      const ProductAddArgs args = {
          .product = {.rows = rows.view(),
                      .x = inputs.view(),
                      .weight = {.data = weight.data(),
                                 .dtype = c.dtype,
                                 .rows = c.rows,
                                 .cols = c.cols},
                      .out = product.data()},
          .add = {.rows = rows.view(),
                  .width = c.rows,
                  .residual = from.data(),
                  .addend = product.data(),
                  .out = in_place ? from.data() : out.data()}};
      if (fused) {
        kernels().ProductAdd(key, args);
      } else {
        kernels().Projection(key, args.product);
        kernels().ResidualAdd(key, args.add);
      }
      Finish();
      return Live(in_place ? from : out, c.live, c.rows);
    };
    const std::vector<float> want = run(false, false);
    EXPECT_TRUE(SameBits(run(true, false), want));
    EXPECT_TRUE(SameBits(run(true, true), want));
  }
}

}  // namespace
}  // namespace signet::backend::gpu
