#pragma once
// Which kernel multiplies rounded inputs and how it cuts the work: pure
// functions of shapes and dtypes (contract N3), so that neither live rows nor
// routes nor ranks change the order of a sum. Host code.
//
// A product is packed when x and weights are bf16, cols is a multiple of 8 and
// matrices begin at multiples of 16 bytes: every row then is whole 16-byte
// pieces. Expert matrices of cols % 8 == 0 begin so, the plan places them.

#include <cstdint>

namespace signet::backend::gpu {

/// Few rows, bound by memory: weights go from memory to registers. A block has
/// up to kSkinnyTokens rows of x and 8 * weight_tiles rows of weights; its
/// warps split cols.
struct SkinnyConfig {
  int weight_tiles = 8;  // 2, 4 or 8
  int warps = 4;         // at most MaxSkinnyWarps
  bool operator==(const SkinnyConfig&) const = default;
};
inline constexpr int kSkinnyTokens = 16;
inline constexpr int kSkinnyStep = 32;  // elements of cols, 64 bytes a row
/// Steps that a warp loads ahead, weight_tiles loads each: what its registers
/// hold.
constexpr int SkinnyRing(int weight_tiles) {
  return weight_tiles == 8 ? 2 : weight_tiles == 4 ? 3 : 4;
}
constexpr int MaxSkinnyWarps(int weight_tiles) {
  return weight_tiles == 8 ? 8 : 16;
}

/// Rows of x and of weights that meet in one block through shared memory.
enum class TileShape { k64x128, k64x256, k128x128, k128x256 };

constexpr int RowsOf(TileShape shape) {
  return shape == TileShape::k64x128 || shape == TileShape::k64x256 ? 64 : 128;
}
constexpr int ColumnsOf(TileShape shape) {
  return shape == TileShape::k64x128 || shape == TileShape::k128x128 ? 128
                                                                     : 256;
}
/// Blocks that may share a tile.
constexpr int MaxCluster(TileShape shape) {
  return ColumnsOf(shape) == 128 ? 8 : RowsOf(shape) == 64 ? 4 : 2;
}

/// The elements of cols that a tile takes at a time.
inline constexpr int kTileStep = 64;

/// Many rows. The blocks of a cluster split cols and add up in their order.
struct TileConfig {
  TileShape shape = TileShape::k128x128;
  int cluster = 1;  // 1, 2, 4 or 8, at most MaxCluster
  bool operator==(const TileConfig&) const = default;
};

/// Many rows on Hopper: up to `rows` of them meet kWarpgroupColumns rows of
/// weights in a block.
inline constexpr int kWarpgroupColumns = 128;
struct WarpgroupConfig {
  int rows = 256;  // 128 or 256
  bool operator==(const WarpgroupConfig&) const = default;
};

enum class ProductFamily { kSkinny, kTiles, kWarpgroups, kPortable };

struct ProductConfig {
  ProductFamily family = ProductFamily::kPortable;
  SkinnyConfig skinny = {};
  TileConfig tiles = {};
  WarpgroupConfig warpgroups = {};
  bool operator==(const ProductConfig&) const = default;
};

struct DenseDesc {
  int64_t rows = 0;  // of x, at most
  int64_t matrix_rows = 0;
  int64_t cols = 0;
  bool packed = false;
};
ProductConfig ConfigOf(const DenseDesc& desc);

struct GroupedDesc {
  int64_t rows_per_expert = 0;  // were the routes balanced, padding included
  int64_t tile_rows = 0;
  int64_t matrix_rows = 0;  // of one matrix
  int64_t cols = 0;
  bool packed = false;
};
ProductConfig ConfigOf(const GroupedDesc& desc);

}  // namespace signet::backend::gpu
