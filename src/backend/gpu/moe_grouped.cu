// Grouped expert products: the tiles of the grouped order against the matrices
// of their experts.

#include <algorithm>
#include <cstdint>

#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/product_config.h"
#include "backend/gpu/product_operands.h"
#include "backend/gpu/vendor.h"
#include "backend/kernels.h"

namespace signet::backend::gpu {
namespace {

/// What gate/up and down have in common: all but the matrices and the output.
template <typename Args>
Operands GroupedOperands(const Args& args, const InputView& x, int64_t cols) {
  return {
      .x = x.data,
      .cols = cols,
      .experts = args.table.experts,
      .num_experts = args.table.num_local,
      .tile_expert = args.tile_expert,
      .sorted_slot = args.sorted_slot,
      .num_tiles = static_cast<int>(args.max_rows / args.tile_rows),
      .tile_rows = static_cast<int>(args.tile_rows),
  };
}

// Packed weights meet rounded inputs on the tensor cores, all else is portable.
template <typename Args>
Status MultiplyGrouped(Stream stream, int num_sms, const Args& args,
                       const InputView& x, tensor::DType weight_dtype,
                       const Operands& op) {
  const bool packed = x.dtype == tensor::DType::kBF16 &&
                      weight_dtype == tensor::DType::kBF16 &&
                      op.cols % 8 == 0 && IsAligned16(x.data);
  const ProductConfig config = ConfigOf(GroupedDesc{
      .rows_per_expert =
          args.max_rows / std::max<int64_t>(args.table.num_local, 1),
      .tile_rows = op.tile_rows,
      .matrix_rows = op.matrix_rows,
      .cols = op.cols,
      .packed = packed,
  });
  return Multiply(stream, num_sms, config, x.dtype, weight_dtype, op);
}

}  // namespace

void GpuKernels::GroupedGateUp(LaunchKey, const GroupedGateUpArgs& args) {
  const ExpertTableView& table = args.table;
  Operands op = GroupedOperands(args, args.x, table.hidden);
  op.slots_per_input = static_cast<int>(args.top_k);
  op.matrix = Matrix::kGate;
  op.matrix_rows = table.width;
  op.out = args.y;
  op.out_stride = 2 * table.width;
  op.layout = {table.layout.gate, table.layout.up};
  if (table.gate_dtype == table.up_dtype) {
    op.num_matrices = 2;
    Check(
        MultiplyGrouped(stream_, num_sms_, args, args.x, table.gate_dtype, op));
    return;
  }
  Check(MultiplyGrouped(stream_, num_sms_, args, args.x, table.gate_dtype, op));
  op.matrix = Matrix::kUp;
  op.layout = {table.layout.up};
  op.out = args.y + table.width;
  Check(MultiplyGrouped(stream_, num_sms_, args, args.x, table.up_dtype, op));
}

void GpuKernels::GroupedDown(LaunchKey, const GroupedDownArgs& args) {
  const ExpertTableView& table = args.table;
  Operands op = GroupedOperands(args, args.act, table.width);
  op.matrix = Matrix::kDown;
  op.matrix_rows = table.hidden;
  op.layout = {table.layout.down};
  op.out = args.y;
  op.out_stride = table.hidden;
  Check(
      MultiplyGrouped(stream_, num_sms_, args, args.act, table.down_dtype, op));
}

}  // namespace signet::backend::gpu
