#include "backend/gpu/many_rows.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "backend/gpu/float_config.h"

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

TEST(ManyRowsTest, TilesGrowWithTheNumberOfRows) {
  for (int64_t rows : {1, 9, 64, 512}) {
    EXPECT_TRUE(ChooseManyTile(rows, 256) == kSmallTile) << rows;
  }
  for (int64_t rows : {544, 1024, 2048, 4096}) {
    EXPECT_TRUE(ChooseManyTile(rows, 256) == kMiddleTile) << rows;
  }
  for (int64_t rows : {8192, 16384}) {
    EXPECT_TRUE(ChooseManyTile(rows, 256) == kLargeTile) << rows;
  }
  // A wave of blocks, not a few more.
  EXPECT_EQ(kSmallTile.Blocks(512, 256), 128);
  EXPECT_EQ(kMiddleTile.Blocks(2048, 256), 128);
  EXPECT_EQ(kLargeTile.Blocks(8192, 256), 128);
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
