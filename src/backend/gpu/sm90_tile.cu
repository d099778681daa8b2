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

// As many stages as shared memory has room for beside the list of parts.
using Rows128 = WarpgroupTile<128, 7, 5>;
using Rows256 = WarpgroupTile<256, 4, 4>;

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
    maps->input_rows = op.last_row ? 32 : T::kRows;
    // Of the last row more is read than is there to be multiplied.
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
Status LaunchWarpgroups(Stream stream, int num_sms, const Operands& op) {
  // Grouped tiles are one part each at most.
  const int rows =
      op.matrix == Matrix::kDense ? T::kRows : static_cast<int>(op.tile_rows);
  const int64_t items = ItemsOf(op, rows, T::kColumns);
  if (items == 0) return kOk;
  TileMaps maps;
  Status status = MakeMaps<T>(op, &maps);
  if (status != kOk) return status;
  status = cudaFuncSetAttribute(WarpgroupTileKernel<T>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                T::kSharedBytes);
  if (status != kOk) return status;
  return Launch(WarpgroupTileKernel<T>,
                dim3(static_cast<unsigned>(std::min<int64_t>(items, num_sms))),
                dim3(T::kThreads), T::kSharedBytes, stream, op, maps);
}

}  // namespace

Status MultiplyWarpgroups(Stream stream, int num_sms,
                          const WarpgroupConfig& config,
                          const Operands& operands) {
  return config.rows == 128
             ? LaunchWarpgroups<Rows128>(stream, num_sms, operands)
             : LaunchWarpgroups<Rows256>(stream, num_sms, operands);
}

}  // namespace signet::backend::gpu
