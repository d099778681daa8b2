#include "backend/gpu/few_rows.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace signet::backend::gpu {
namespace {

FloatProducts ProductsOf(int64_t capacity) {
  FloatProducts products;
  products.capacity = capacity;
  products.cols = 2048;
  products.parts[0].rows = 8192;
  products.num_parts = 1;
  return products;
}

// Else a batch would be multiplied on the plain cores.
TEST(FewRowsTest, TakesTheFlagshipsProductsOfABatch) {
  for (int64_t capacity = 1; capacity <= 9; ++capacity) {
    EXPECT_EQ(TakesFewRows(ProductsOf(capacity)),
              capacity >= 2 && capacity <= 8)
        << capacity;
  }
}

TEST(FewRowsTest, TakesANormAsItIsStored) {
  FloatProducts products = ProductsOf(8);
  products.norm = true;
  EXPECT_TRUE(TakesFewRows(products));
  products.norm_weight.dtype = tensor::DType::kF32;
  EXPECT_FALSE(TakesFewRows(products));
}

// Of products that are not taken together one may be taken alone, in another
// order of sums.
TEST(FewRowsTest, WhatItDoesNotTakeIsNotFused) {
  FloatProducts products = ProductsOf(8);
  products.norm = true;
  EXPECT_TRUE(CanFuse(products, 132));
  products.norm_weight.dtype = tensor::DType::kF32;
  EXPECT_FALSE(CanFuse(products, 132));
}

}  // namespace
}  // namespace signet::backend::gpu
