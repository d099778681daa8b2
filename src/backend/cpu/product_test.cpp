#include "backend/cpu/product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/cpu/kernel_testing.h"

namespace signet::backend::cpu {
namespace {

using tensor::DType;
using namespace testing;  // NOLINT(google-build-using-namespace)

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

/// Inputs in scattered order, as gathered rows are, and outputs in rows of
/// their own with a column to either side.
struct Operands {
  Operands(Random& random, DType dtype, int64_t inputs, int64_t weights,
           int64_t cols)
      : matrix(random, dtype, weights, cols),
        x(RandomFloats(random, inputs * cols)),
        out(inputs * (weights + 2)) {
    for (int64_t m = 0; m < inputs; ++m) {
      in_rows.push_back(x.data() + (inputs - 1 - m) * cols);
      out_rows.push_back(out.data() + m * (weights + 2) + 1);
    }
    block = {.inputs = in_rows.data(),
             .outputs = out_rows.data(),
             .num_inputs = inputs,
             .weights = matrix.data(),
             .dtype = dtype,
             .num_weights = weights,
             .cols = cols};
  }
  StoredMatrix matrix;
  std::vector<float> x;
  Guarded<float> out;
  std::vector<const float*> in_rows;
  std::vector<float*> out_rows;
  ProductBlock block;
};

void ExpectDefined(const Operands& op) {
  const ProductBlock& block = op.block;
  for (int64_t m = 0; m < block.num_inputs; ++m) {
    for (int64_t n = 0; n < block.num_weights; ++n) {
      const float got = block.outputs[m][n];
      const float* w = op.matrix.row(n);
      ASSERT_EQ(got, DefinedDot(block.inputs[m], w, block.cols))
          << m << " of " << block.num_inputs << ", " << n << " of "
          << block.num_weights << ", cols " << block.cols;
      const ExactDot exact(block.inputs[m], w, block.cols);
      ASSERT_LE(std::abs(got - exact.value), exact.Bound(block.cols));
    }
    const int64_t row = m * (block.num_weights + 2);
    ASSERT_TRUE(op.out.IsPoison(row));
    ASSERT_TRUE(op.out.IsPoison(row + block.num_weights + 1));
  }
  ASSERT_TRUE(op.out.CanariesIntact());
}

TEST(ProductTest, EveryShapeAndTargetGivesTheDefinedBits) {
  Random random(1);
  for (int64_t target : OnTarget::All()) {
    const OnTarget on(target);
    for (DType dtype : kDTypes) {
      for (int64_t cols : {1, 7, 15, 16, 17, 22, 44, 96, 512, 513, 1040}) {
        for (int64_t weights : {1, 3, 4, 17}) {
          for (int64_t inputs : {1, 2, 3, 4, 5, 8, 9, 10, 11, 33, 64}) {
            Operands op(random, dtype, inputs, weights, cols);
            MultiplyBlock(op.block);
            ExpectDefined(op);
          }
        }
      }
    }
  }
}

TEST(ProductTest, LongReductions) {
  Random random(2);
  for (int64_t target : OnTarget::All()) {
    const OnTarget on(target);
    for (int64_t inputs : {1, 3, 13}) {
      for (int64_t cols : {2048, 5000}) {
        Operands op(random, DType::kBF16, inputs, 6, cols);
        MultiplyBlock(op.block);
        ExpectDefined(op);
      }
    }
  }
}

TEST(ProductTest, NothingToDoTouchesNothing) {
  Random random(3);
  Operands op(random, DType::kBF16, 2, 2, 16);
  for (ProductBlock block : {op.block, op.block}) {
    block.num_inputs = 0;
    MultiplyBlock(block);
    block.num_inputs = 2;
    block.num_weights = 0;
    MultiplyBlock(block);
  }
  for (int64_t i = 0; i < op.out.size(); ++i) EXPECT_TRUE(op.out.IsPoison(i));
}

}  // namespace
}  // namespace signet::backend::cpu
