// Route, gate and up of the selected experts, activation: one launch.

#include <algorithm>
#include <cstdint>

#include "backend/gpu/decode_gate_up.h"
#include "backend/gpu/float_config.h"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/moe_indexed.cuh"

namespace signet::backend::gpu {

void GpuKernels::RouteGateUp(LaunchKey key, const RouteGateUpArgs& op) {
  if (TakesGateUp(op)) return Check(RunGateUp(stream_, num_sms_, op));
  const ExpertTableView& table = op.gate_up.table;
  const RouteGateUpDesc desc = {.capacity = op.route.rows.capacity,
                                .top_k = op.route.top_k};
  if (!FusesRouteGateUp(desc)) {
    Route(key, op.route);
    IndexedGateUp(key, op.gate_up);
    Activation(key, op.activation);
    return;
  }
  const ExpertDesc experts = DescribeGateUp(op.gate_up, num_sms_);
  const ExpertConfig config = ChooseExpert(experts);
  if (config.blocks == 0) return;
  ExpertKernelArgs args = ExpertArgs(op.route.rows, op.route.top_k, table,
                                     op.gate_up.x, experts, config);
  args.low_out = op.activation.out;
  args.scores = op.route.scores;
  args.routed_ids = op.route.ids;
  args.routed_weights = op.route.weights;
  args.flag = op.route.flag;
  args.renormalise = op.route.renormalise;
  args.down_bytes = table.hidden * table.width *
                    static_cast<int64_t>(SizeOf(table.down_dtype));
  const int64_t piece = (args.down_bytes + config.blocks - 1) / config.blocks;
  args.down_piece = (piece + 127) / 128 * 128;
  args.down_slots = static_cast<int>(
      std::min<int64_t>(kExpertSlots, kMaxPrefetchBytes / args.down_bytes));
  Check(RunExperts<ExpertOp::kRouteGateUp>(stream_, config, args));
}

}  // namespace signet::backend::gpu
