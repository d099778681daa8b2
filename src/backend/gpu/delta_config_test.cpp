#include "backend/gpu/delta_config.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace signet::backend::gpu {
namespace {

TEST(ConvConfigTest, VectorsWhereTheyFit) {
  ConvDesc desc = {.form = RowForm::kSequenceEach,
                   .capacity = 5,
                   .channels = 8192,
                   .taps = 4,
                   .aligned = true};
  EXPECT_EQ(ConfigOf(desc).channels, 4);
  EXPECT_EQ(ConfigOf(desc).blocks * 4 * kConvThreads, 8192);
  EXPECT_EQ(ConfigOf(desc).row_tiles, 5);
  desc.aligned = false;
  EXPECT_EQ(ConfigOf(desc).channels, 1);
  desc.aligned = true;
  desc.taps = 3;
  EXPECT_EQ(ConfigOf(desc).channels, 1);
  desc.taps = 4;
  desc.channels = 22;
  EXPECT_EQ(ConfigOf(desc).channels, 1);
  EXPECT_EQ(ConfigOf(desc).blocks, 1);
}

TEST(ConvConfigTest, TilesCoverTheRows) {
  for (const int64_t capacity : {1, 15, 16, 17, 2048, 4097}) {
    const ConvConfig config = ConfigOf(ConvDesc{.form = RowForm::kOneSequence,
                                                .capacity = capacity,
                                                .channels = 64,
                                                .taps = 4});
    EXPECT_GE(config.row_tiles * kConvTileRows, capacity);
    EXPECT_LT((config.row_tiles - 1) * kConvTileRows, capacity);
  }
}

TEST(DeltaConfigTest, RowsAndColumnsAreCovered) {
  for (const int64_t dk : {1, 8, 32, 33, 128, 129, 256, 300, 512}) {
    for (const int64_t dv : {1, 8, 32, 44, 128, 512}) {
      const DeltaConfig config = ConfigOf(DeltaDesc{
          .capacity = 3, .value_heads = 2, .key_dim = dk, .value_dim = dv});
      EXPECT_GE(config.rows_per_warp * kDeltaWarps, dk);
      EXPECT_GE(config.slices * kDeltaColumns, dv);
      EXPECT_EQ(config.calls, 3);
      EXPECT_EQ(config.whole, config.rows_per_warp * kDeltaWarps == dk &&
                                  config.slices * kDeltaColumns == dv);
    }
  }
}

TEST(DeltaConfigTest, SequencesOfUsualHeadsAreChunked) {
  DeltaDesc desc = {.form = DeltaForm::kChunked,
                    .capacity = 8192,
                    .key_heads = 16,
                    .value_heads = 32,
                    .key_dim = 128,
                    .value_dim = 128,
                    .aligned = true,
                    .scratch_bytes = int64_t{255} << 20};
  EXPECT_EQ(ConfigOf(desc).chunks, 128);
  EXPECT_EQ(ConfigOf(desc).segments, 1);
  EXPECT_EQ(ConfigOf(desc).slices, 4);
  EXPECT_EQ(ConfigOf(desc).calls, 1);
  desc.capacity = 8193;
  EXPECT_EQ(ConfigOf(desc).chunks, 128);
  EXPECT_EQ(ConfigOf(desc).segments, 2);
  // Chunked for a call of any size: bits do not depend on it.
  desc.capacity = 1;
  EXPECT_EQ(ConfigOf(desc).chunks, 1);
  EXPECT_EQ(ConfigOf(desc).segments, 1);
  desc.capacity = 2048;
  std::array<DeltaDesc, 4> others = {desc, desc, desc, desc};
  others[0].value_dim = 48;
  others[1].key_dim = 64;
  others[2].aligned = false;
  others[3].form = DeltaForm::kRecurrent;
  for (const DeltaDesc& other : others) {
    EXPECT_EQ(ConfigOf(other).chunks, 0);
  }
}

TEST(DeltaConfigTest, SegmentsFitTheScratchAndCoverTheRows) {
  for (const int64_t key_heads : {1, 3, 16, 64, 2048}) {
    for (const int64_t capacity : {1, 64, 65, 1000, 8192}) {
      const DeltaDesc desc = {.form = DeltaForm::kChunked,
                              .capacity = capacity,
                              .key_heads = key_heads,
                              .value_heads = 2 * key_heads,
                              .key_dim = 128,
                              .value_dim = 64,
                              .aligned = true,
                              .scratch_bytes = int64_t{60} << 20};
      const DeltaConfig config = ConfigOf(desc);
      // Too many heads for one chunk.
      EXPECT_EQ(config.chunks == 0, key_heads == 2048);
      if (config.chunks == 0) continue;
      EXPECT_LE(config.chunks * key_heads *
                    (kDeltaChunkKeyBytes + 2 * kDeltaChunkHeadBytes),
                desc.scratch_bytes);
      const int64_t rows = config.chunks * kDeltaChunkTokens;
      EXPECT_GE(config.segments * rows, capacity);
      EXPECT_LT((config.segments - 1) * rows, capacity);
    }
  }
}

TEST(DeltaMixConfigTest, AClusterHoldsAllThatReadAKeyHead) {
  for (const int64_t ratio : {1, 2, 3, 4, 5, 8}) {
    const DeltaMixConfig config =
        ConfigOf(DeltaMixDesc{.key_heads = 16,
                              .value_heads = 16 * ratio,
                              .key_dim = 128,
                              .value_dim = 128,
                              .taps = 4,
                              .aligned = true});
    EXPECT_EQ(config.fused, ratio <= 4) << ratio;
    if (!config.fused) continue;
    EXPECT_LE(config.cluster, 8);
    EXPECT_EQ(config.cluster * config.columns, 128 * ratio);
  }
}

TEST(DeltaMixConfigTest, OtherShapesAreNotFused) {
  const DeltaMixDesc usual = {.key_heads = 16,
                              .value_heads = 32,
                              .key_dim = 128,
                              .value_dim = 128,
                              .taps = 4,
                              .aligned = true};
  EXPECT_EQ(ConfigOf(usual).columns, 32);
  EXPECT_EQ(ConfigOf(usual).cluster, 8);
  std::array<DeltaMixDesc, 4> others = {usual, usual, usual, usual};
  others[0].key_dim = 64;
  others[1].value_dim = 256;
  others[2].taps = 3;
  others[3].aligned = false;
  for (const DeltaMixDesc& other : others) {
    EXPECT_FALSE(ConfigOf(other).fused);
  }
}

}  // namespace
}  // namespace signet::backend::gpu
