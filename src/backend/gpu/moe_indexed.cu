// Indexed expert products: one input row a slot (decode).

#include <cstdint>

#include "backend/gpu/float_config.h"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/moe_indexed.cuh"

namespace signet::backend::gpu {

void GpuKernels::IndexedGateUp(LaunchKey, const IndexedGateUpArgs& op) {
  const ExpertDesc desc = DescribeGateUp(op, num_sms_);
  const ExpertConfig config = ChooseExpert(desc);
  ExpertKernelArgs args =
      ExpertArgs(op.rows, op.top_k, op.table, op.x, desc, config);
  args.ids = op.ids;
  args.low_out = op.gate;
  args.high_out = op.up;
  Check(RunExperts<ExpertOp::kGateUp>(stream_, config, args));
}

void GpuKernels::IndexedDown(LaunchKey, const IndexedDownArgs& op) {
  const ExpertTableView& table = op.table;
  const ExpertDesc desc = {
      .capacity = op.rows.capacity,
      .top_k = op.top_k,
      .num_experts = table.num_experts,
      .rows = table.hidden,
      .cols = table.width,
      .paired = false,
      .bf16 = table.down_dtype == tensor::DType::kBF16,
      .aligned = reinterpret_cast<uintptr_t>(op.act) % 16 == 0,
      .num_sms = num_sms_};
  const ExpertConfig config = ChooseExpert(desc);
  ExpertKernelArgs args =
      ExpertArgs(op.rows, op.top_k, table, op.act, desc, config);
  args.ids = op.ids;
  args.low_out = op.out;
  Check(RunExperts<ExpertOp::kDown>(stream_, config, args));
}

}  // namespace signet::backend::gpu
