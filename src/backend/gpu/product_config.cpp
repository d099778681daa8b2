#include "backend/gpu/product_config.h"

#include <algorithm>
#include <cstdint>

namespace signet::backend::gpu {
namespace {

// Sizes of the GPU that the choices aim at. They are no properties of the
// device in hand: that would be a dependence the contract does not allow.
constexpr int64_t kSms = 132;
// Warps' loads of 512 bytes that keep the memory busy.
constexpr int64_t kBusyLoads = 16000;

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

SkinnyConfig DenseSkinny(const DenseDesc& desc) {
  SkinnyConfig config;
  // Large blocks read less of x again, but there must be one for almost every
  // multiprocessor.
  const auto blocks = [&] {
    return CeilDiv(desc.matrix_rows, 8 * config.weight_tiles);
  };
  while (config.weight_tiles > 2 && blocks() < kSms * 9 / 10) {
    config.weight_tiles /= 2;
  }
  // Two steps a warp, at least, outweigh the sum over warps.
  const int loads = config.weight_tiles * SkinnyRing(config.weight_tiles);
  while (config.warps < MaxSkinnyWarps(config.weight_tiles) &&
         blocks() * config.warps * loads < kBusyLoads &&
         desc.cols >= 2 * kSkinnyStep * 2 * config.warps) {
    config.warps *= 2;
  }
  return config;
}

TileConfig DenseTiles(const DenseDesc& desc) {
  const bool low = desc.rows <= 64;
  TileConfig config;
  const auto tiles = [&](TileShape shape) {
    return CeilDiv(desc.rows, RowsOf(shape)) *
           CeilDiv(desc.matrix_rows, ColumnsOf(shape));
  };
  // Wide tiles read less of x again, once there are enough of them; a cluster
  // makes up for few.
  if (low) {
    config.shape = tiles(TileShape::k64x256) >= 24 ? TileShape::k64x256
                                                   : TileShape::k64x128;
  } else {
    config.shape = desc.matrix_rows > 128 && tiles(TileShape::k128x256) >= 60
                       ? TileShape::k128x256
                       : TileShape::k128x128;
  }
  const bool wide = ColumnsOf(config.shape) == 256;
  const int64_t room = wide ? kSms : 2 * kSms;  // blocks that run at once
  const int64_t min_cols = low ? 256 : 512;  // of a block, to pay for its sum
  while (config.cluster < MaxCluster(config.shape) &&
         tiles(config.shape) * config.cluster * 2 <= room &&
         desc.cols >= min_cols * config.cluster * 2) {
    config.cluster *= 2;
  }
  return config;
}

/// More rows than clusters of small tiles are good for.
constexpr int64_t kManyRows = 128;

/// Tall tiles read less of the weights again, but the last turn of blocks may
/// leave more multiprocessors idle.
WarpgroupConfig DenseWarpgroups(const DenseDesc& desc) {
  const auto turns = [&](int64_t rows) {
    const int64_t tiles =
        CeilDiv(desc.rows, rows) * CeilDiv(desc.matrix_rows, kWarpgroupColumns);
    return CeilDiv(tiles, kSms);
  };
  // A turn of tall tiles takes nearly two of low ones.
  const bool tall = 7 * turns(256) <= 4 * turns(128);
  return {.rows = tall ? 256 : 128};
}

}  // namespace

ProductConfig ConfigOf(const DenseDesc& desc) {
  if (!desc.packed) return {.family = ProductFamily::kPortable};
  if (desc.rows > kManyRows) {
    return {.family = ProductFamily::kWarpgroups,
            .warpgroups = DenseWarpgroups(desc)};
  }
  if (desc.rows <= kSkinnyTokens) {
    return {.family = ProductFamily::kSkinny, .skinny = DenseSkinny(desc)};
  }
  return {.family = ProductFamily::kTiles, .tiles = DenseTiles(desc)};
}

// The expert dimension gives blocks enough, and small ones hide how each
// begins: cols is split among the few warps of a block alone, by its own size,
// eight steps a warp at least.
ProductConfig ConfigOf(const GroupedDesc& desc) {
  if (!desc.packed) return {.family = ProductFamily::kPortable};
  if (desc.tile_rows <= kSkinnyTokens) {
    SkinnyConfig skinny;
    skinny.weight_tiles = desc.matrix_rows > 16 ? 4 : 2;
    skinny.warps = 1;
    while (skinny.warps < 8 &&
           desc.cols >= 2 * 8 * kSkinnyStep * skinny.warps) {
      skinny.warps *= 2;
    }
    return {.family = ProductFamily::kSkinny, .skinny = skinny};
  }
  // A part is whole tiles.
  if (kManyRows % desc.tile_rows == 0) {
    return {.family = ProductFamily::kWarpgroups,
            .warpgroups = {.rows = desc.rows_per_expert > 160 ? 256 : 128}};
  }
  const bool wide = desc.matrix_rows > 128;
  const bool low = desc.tile_rows <= 64;
  return {
      .family = ProductFamily::kTiles,
      .tiles = {.shape =
                    low ? (wide ? TileShape::k64x256 : TileShape::k64x128)
                        : (wide ? TileShape::k128x256 : TileShape::k128x128)}};
}

}  // namespace signet::backend::gpu
