#include "backend/gpu/product_config.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace signet::backend::gpu {
namespace {

constexpr int64_t kCounts[] = {1,   2,   8,    9,    16,   17,   31,    32,
                               33,  63,  64,   65,   127,  128,  129,   255,
                               256, 512, 1000, 2048, 4096, 8192, 12288, 248320};

void ExpectSound(const ProductConfig& config) {
  if (config.family == ProductFamily::kSkinny) {
    const SkinnyConfig& skinny = config.skinny;
    EXPECT_TRUE(skinny.weight_tiles == 2 || skinny.weight_tiles == 4 ||
                skinny.weight_tiles == 8);
    EXPECT_GE(skinny.warps, 1);
    EXPECT_LE(skinny.warps, MaxSkinnyWarps(skinny.weight_tiles));
  }
  if (config.family == ProductFamily::kTiles) {
    const int cluster = config.tiles.cluster;
    EXPECT_TRUE(cluster == 1 || cluster == 2 || cluster == 4 || cluster == 8);
    EXPECT_LE(cluster, MaxCluster(config.tiles.shape));
  }
  if (config.family == ProductFamily::kWarpgroups) {
    const int rows = config.warpgroups.rows;
    EXPECT_TRUE(rows == 128 || rows == 256);
  }
}

TEST(ProductConfigTest, EveryShapeHasAKernelThatTakesIt) {
  for (int64_t rows : kCounts) {
    for (int64_t matrix_rows : kCounts) {
      for (int64_t cols : kCounts) {
        const ProductConfig dense = ConfigOf(DenseDesc{
            .rows = rows,
            .matrix_rows = matrix_rows,
            .cols = cols,
            .packed = true,
        });
        ExpectSound(dense);
        EXPECT_EQ(dense.family, rows <= kSkinnyTokens ? ProductFamily::kSkinny
                                : rows <= 128         ? ProductFamily::kTiles
                                              : ProductFamily::kWarpgroups);
        const ProductConfig grouped = ConfigOf(GroupedDesc{
            .tile_rows = rows,
            .matrix_rows = matrix_rows,
            .cols = cols,
            .packed = true,
        });
        ExpectSound(grouped);
        // What a rank holds of the experts must change no order of a sum.
        EXPECT_EQ(grouped.tiles.cluster, 1);
        const ProductConfig more = ConfigOf(GroupedDesc{
            .rows_per_expert = 1000,
            .tile_rows = rows,
            .matrix_rows = matrix_rows,
            .cols = cols,
            .packed = true,
        });
        ExpectSound(more);
        EXPECT_EQ(more.family, grouped.family);
      }
    }
  }
}

TEST(ProductConfigTest, WhatIsNotPackedIsPortable) {
  EXPECT_EQ(
      ConfigOf(DenseDesc{.rows = 64, .matrix_rows = 8192, .cols = 2048}).family,
      ProductFamily::kPortable);
  EXPECT_EQ(
      ConfigOf(GroupedDesc{.tile_rows = 16, .matrix_rows = 512, .cols = 2048})
          .family,
      ProductFamily::kPortable);
}

TEST(ProductConfigTest, DecodeOfTheFlagshipFillsTheDevice) {
  const auto blocks = [](int64_t rows, int64_t matrix_rows, int64_t cols) {
    const ProductConfig config = ConfigOf(DenseDesc{
        .rows = rows,
        .matrix_rows = matrix_rows,
        .cols = cols,
        .packed = true,
    });
    const int columns = config.family == ProductFamily::kSkinny
                            ? 8 * config.skinny.weight_tiles
                            : ColumnsOf(config.tiles.shape);
    const int64_t panels = (matrix_rows + columns - 1) / columns;
    return panels *
           (config.family == ProductFamily::kSkinny ? 1 : config.tiles.cluster);
  };
  for (int64_t rows : {9, 16, 32, 64, 128}) {
    EXPECT_GE(blocks(rows, 2048, 4096), 96);
    EXPECT_GE(blocks(rows, 4096, 2048), 96);
    EXPECT_GE(blocks(rows, 8192, 2048), 96);
    EXPECT_GE(blocks(rows, 12288, 2048), 96);
    EXPECT_GE(blocks(rows, 248320, 2048), 132);
  }
}

TEST(ProductConfigTest, PrefillTakesTallTilesUnlessTurnsAreFew) {
  const auto rows_of = [](int64_t rows, int64_t matrix_rows) {
    return ConfigOf(DenseDesc{.rows = rows,
                              .matrix_rows = matrix_rows,
                              .cols = 2048,
                              .packed = true})
        .warpgroups.rows;
  };
  for (int64_t matrix_rows : {2048, 4096, 8192}) {
    EXPECT_EQ(rows_of(2048, matrix_rows), 256) << matrix_rows;
    EXPECT_EQ(rows_of(8192, matrix_rows), 256) << matrix_rows;
  }
  EXPECT_EQ(rows_of(512, 2048), 128);
}

TEST(ProductConfigTest, ExpertsOfManyRowsTakeTallTiles) {
  const auto config = [](int64_t rows_per_expert, int64_t tile_rows) {
    return ConfigOf(GroupedDesc{.rows_per_expert = rows_per_expert,
                                .tile_rows = tile_rows,
                                .matrix_rows = 512,
                                .cols = 2048,
                                .packed = true});
  };
  EXPECT_EQ(config(127, 64).warpgroups.rows, 128);
  EXPECT_EQ(config(319, 64).warpgroups.rows, 256);
  // Tiles of which no whole number is a part.
  EXPECT_EQ(config(319, 160).family, ProductFamily::kTiles);
}

}  // namespace
}  // namespace signet::backend::gpu
