// Launches of the product by warpgroups.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backend/gpu/product_config.h"
#include "backend/gpu/product_operands.h"
#include "backend/gpu/sm90_tile.cuh"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {
namespace {

// As many stages as shared memory has room for.
template <int kCluster>
using Dense128 = WarpgroupTile<128, 9, 4, 0, kCluster>;
template <int kCluster>
using Dense256 = WarpgroupTile<256, 5, 4, 0, kCluster>;
// Beside the lists of parts and of rows. Of many rows a warp alone would take
// longer to ask for a stage than two warpgroups to multiply it.
using Grouped128 = WarpgroupTile<128, 6, 7, 1, 1>;
using Grouped256 = WarpgroupTile<256, 3, 5, 2, 1>;

/// Maps of all matrices of a dense product, or of those experts that lie at one
/// distance.
template <typename T>
Status MakeMaps(const Operands& op, TileMaps* maps) {
  const auto map = [&](const void* data, int64_t count, int64_t apart,
                       int64_t rows, int box_rows, TensorMap* to) {
    return MakeTensorMap({data, count, apart, rows, op.cols}, box_rows, to);
  };
  Status status = kOk;
  if (op.matrix == Matrix::kDense) {
    maps->has_weights = true;
    // A box for each block of a cluster. Of the last row more is read than is
    // there to be multiplied.
    maps->input_rows = op.last_row ? 32 : T::kRows / T::kCluster;
    status = map(op.x, 1, 0, op.input_rows, maps->input_rows, &maps->inputs);
    for (int p = 0; p < op.num_parts && status == kOk; ++p) {
      const DensePart& part = op.parts[static_cast<size_t>(p)];
      status =
          map(part.weight, 1, 0, part.rows, T::kColumns, &maps->weights[p]);
    }
    return status;
  }
  for (int m = 0; m < op.num_matrices && status == kOk; ++m) {
    const ExpertMatrices& matrices = op.layout[static_cast<size_t>(m)];
    if (matrices.first == nullptr) return kOk;
    status = map(matrices.first, op.num_experts, matrices.apart, op.matrix_rows,
                 T::kColumns, &maps->weights[m]);
  }
  maps->has_weights = status == kOk;
  return status;
}

template <typename T>
Status LaunchTiles(Stream stream, int num_sms, const Operands& op) {
  // Grouped tiles are one part each at most.
  const int rows = T::kGathers ? static_cast<int>(op.tile_rows) : T::kRows;
  const int64_t items = ItemsOf(op, rows, T::kColumns);
  if (items == 0) return kOk;
  TileMaps maps;
  Status status = MakeMaps<T>(op, &maps);
  if (status != kOk) return status;
  status = cudaFuncSetAttribute(WarpgroupTileKernel<T>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                T::kSharedBytes);
  if (status != kOk) return status;
  const auto blocks = static_cast<unsigned>(
      std::min<int64_t>(items, num_sms / T::kCluster * T::kCluster));
  return LaunchClusters(T::kCluster, WarpgroupTileKernel<T>, dim3(blocks),
                        dim3(T::kThreads), T::kSharedBytes, stream, op, maps);
}

/// Blocks in pairs where columns make whole pairs.
template <typename Single, typename Pair>
Status LaunchDense(Stream stream, int num_sms, const Operands& op) {
  return ColumnTilesOf(op, kWarpgroupColumns) % 2 == 0
             ? LaunchTiles<Pair>(stream, num_sms, op)
             : LaunchTiles<Single>(stream, num_sms, op);
}

}  // namespace

Status MultiplyWarpgroups(Stream stream, int num_sms,
                          const WarpgroupConfig& config,
                          const Operands& operands) {
  if (operands.matrix != Matrix::kDense) {
    return config.rows == 256
               ? LaunchTiles<Grouped256>(stream, num_sms, operands)
               : LaunchTiles<Grouped128>(stream, num_sms, operands);
  }
  return config.rows == 256
             ? LaunchDense<Dense256<1>, Dense256<2>>(stream, num_sms, operands)
             : LaunchDense<Dense128<1>, Dense128<2>>(stream, num_sms, operands);
}

}  // namespace signet::backend::gpu
