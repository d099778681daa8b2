// Launches of the tiled product.

#include <algorithm>
#include <cstdint>

#include "backend/gpu/product_config.h"
#include "backend/gpu/product_operands.h"
#include "backend/gpu/sm80_tile.cuh"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {
namespace {

// Stages as many as shared memory has room for, two blocks a multiprocessor
// where registers allow them.
using Tile64x128 = TileTraits<TileShape::k64x128, 1, 4, 4, 2>;
using Tile64x256 = TileTraits<TileShape::k64x256, 1, 8, 4, 1>;
using Tile128x128 = TileTraits<TileShape::k128x128, 2, 2, 3, 2>;
using Tile128x256 = TileTraits<TileShape::k128x256, 2, 4, 4, 1>;

template <typename T>
Status LaunchBlocks(void (*kernel)(Operands, bool), int64_t blocks,
                    Stream stream, const Operands& op) {
  const Status status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::kSharedBytes);
  if (status != kOk) return status;
  const auto pairs = [](const float* out, int64_t stride, int64_t rows) {
    return stride % 2 == 0 && rows % 2 == 0 &&
           reinterpret_cast<uintptr_t>(out) % 8 == 0;
  };
  bool paired = op.matrix == Matrix::kDense ||
                pairs(op.out, op.out_stride, op.matrix_rows);
  for (int p = 0; p < op.num_parts; ++p) {
    const DensePart& part = op.parts[static_cast<size_t>(p)];
    paired = paired && pairs(part.out, part.rows, part.rows);
  }
  return Launch(kernel, dim3(static_cast<unsigned>(blocks)), dim3(T::kThreads),
                T::kSharedBytes, stream, op, paired);
}

template <typename T, int kCluster>
Status LaunchCluster(int64_t items, Stream stream, const Operands& op) {
  if constexpr (kCluster <= MaxCluster(T::kShape)) {
    return LaunchBlocks<T>(ClusterTileKernel<T, kCluster>, kCluster * items,
                           stream, op);
  } else {
    return cudaErrorInvalidConfiguration;
  }
}

// Without clusters blocks walk over the panels; how many blocks there are is a
// matter of speed alone.
template <typename T>
Status LaunchTiles(Stream stream, int num_sms, int cluster,
                   const Operands& op) {
  const int64_t items = ItemsOf(op, T::kRows, T::kColumns);
  if (items == 0) return kOk;
  switch (cluster) {
    case 8:
      return LaunchCluster<T, 8>(items, stream, op);
    case 4:
      return LaunchCluster<T, 4>(items, stream, op);
    case 2:
      return LaunchCluster<T, 2>(items, stream, op);
    default:
      return LaunchBlocks<T>(TileKernel<T>,
                             std::min<int64_t>(items, num_sms * T::kBlocks),
                             stream, op);
  }
}

}  // namespace

Status MultiplyTiles(Stream stream, int num_sms, const TileConfig& config,
                     const Operands& operands) {
  switch (config.shape) {
    case TileShape::k64x128:
      return LaunchTiles<Tile64x128>(stream, num_sms, config.cluster, operands);
    case TileShape::k64x256:
      return LaunchTiles<Tile64x256>(stream, num_sms, config.cluster, operands);
    case TileShape::k128x128:
      return LaunchTiles<Tile128x128>(stream, num_sms, config.cluster,
                                      operands);
    case TileShape::k128x256:
      return LaunchTiles<Tile128x256>(stream, num_sms, config.cluster,
                                      operands);
  }
  return cudaErrorInvalidValue;
}

}  // namespace signet::backend::gpu
