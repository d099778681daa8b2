// Route, gate and up of the selected experts, activation: one launch.

#include <algorithm>
#include <cstdint>

#include "backend/gpu/decode_gate_up.h"
#include "backend/gpu/decode_moe_tail.h"
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

namespace {

/// Gate and up of the shared expert, the last two of the products.
SharedGateUp SharedOf(const NormProductsArgs& products) {
  const auto last = static_cast<size_t>(products.num_products - 1);
  const WeightView& gate = products.products[last - 1].weight;
  return {gate.data, products.products[last].weight.data,
          products.activation.out, gate.rows};
}

bool TakesShared(const MoeBlockArgs& op) {
  const NormProductsArgs& products = op.products;
  if (!products.activated || products.num_products < 3 ||
      !TakesSharedGateUp(op.experts, SharedOf(products))) {
    return false;
  }
  const auto last = static_cast<size_t>(products.num_products - 1);
  const ProjectionArgs& gate = products.products[last - 1];
  const ProjectionArgs& up = products.products[last];
  return gate.weight.dtype == tensor::DType::kBF16 &&
         up.weight.dtype == tensor::DType::kBF16 &&
         gate.weight.rows == up.weight.rows &&
         gate.weight.rows == products.activation.width &&
         gate.weight.cols == op.experts.gate_up.table.hidden;
}

}  // namespace

void GpuKernels::MoeBlock(LaunchKey key, const MoeBlockArgs& op) {
  static_assert(kMaxListedSlots * sizeof(DownSlot) <= kBlockBytes);
  const bool fast = TakesGateUp(op.experts);
  DownSlots down;
  if (fast && TakesMoeTail(op.tail)) {
    down = {
        reinterpret_cast<DownSlot*>(static_cast<char*>(scratch_) + kSplitBytes),
        op.tail.combine.lanes, op.tail.combine.first_lane};
  }
  if (TakesShared(op)) {
    NormProductsArgs rest = op.products;
    rest.num_products -= 2;
    rest.activated = false;
    NormProducts(key, rest);
    Check(
        RunGateUp(stream_, num_sms_, op.experts, SharedOf(op.products), down));
  } else {
    NormProducts(key, op.products);
    if (fast) {
      Check(RunGateUp(stream_, num_sms_, op.experts, {}, down));
    } else {
      RouteGateUp(key, op.experts);
    }
  }
  if (down.slots != nullptr) {
    Check(RunMoeTail(stream_, num_sms_, op.tail, down));
  } else {
    MoeTail(key, op.tail);
  }
}

}  // namespace signet::backend::gpu
