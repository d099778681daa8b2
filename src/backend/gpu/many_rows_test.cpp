#include "backend/gpu/many_rows.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace signet::backend::gpu {
namespace {

FloatProducts Scores(int64_t capacity) {
  FloatProducts products;
  products.capacity = capacity;
  products.cols = 2048;
  products.parts[0].rows = 256;
  products.num_parts = 1;
  return products;
}

// Else routers of chunks would be multiplied on the plain cores.
TEST(ManyRowsTest, TakesTheFlagshipsScoresOfAChunk) {
  for (int64_t capacity : {9, 64, 512, 2048, 8192}) {
    EXPECT_TRUE(TakesManyRows(Scores(capacity))) << capacity;
  }
  for (int64_t capacity : {1, 2, 8}) {
    EXPECT_FALSE(TakesManyRows(Scores(capacity))) << capacity;
  }
}

TEST(ManyRowsTest, TakesPlainProductsOfWholeTiles) {
  FloatProducts products = Scores(64);
  products.cols = 2040;
  EXPECT_FALSE(TakesManyRows(products));
  products = Scores(64);
  products.parts[0].rows = 1;  // the shared expert's gate
  EXPECT_FALSE(TakesManyRows(products));
  products = Scores(64);
  products.dtype = tensor::DType::kF16;
  EXPECT_FALSE(TakesManyRows(products));
  products = Scores(64);
  products.norm = true;
  EXPECT_FALSE(TakesManyRows(products));
  products = Scores(64);
  const float residual = 0;
  products.residual = &residual;
  EXPECT_FALSE(TakesManyRows(products));
  products = Scores(64);
  products.x = reinterpret_cast<const float*>(uintptr_t{8});
  EXPECT_FALSE(TakesManyRows(products));
}

}  // namespace
}  // namespace signet::backend::gpu
