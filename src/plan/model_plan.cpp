#include "plan/model_plan.h"

#include <algorithm>
#include <utility>

#include "plan/admission.h"
#include "plan/contract_text.h"

namespace signet::plan {
namespace {

std::vector<int64_t> DefaultBuckets(int64_t batch) {
  std::vector<int64_t> buckets;
  for (int64_t rows = 1; rows < batch; rows *= 2) buckets.push_back(rows);
  buckets.push_back(batch);
  return buckets;
}

std::vector<int64_t> DefaultChunks(const topology::Mesh& mesh,
                                   int64_t context) {
  std::vector<int64_t> chunks = {32, 128, 512};
  if (mesh.device(Rank(0)).is_gpu()) chunks = {64, 512, 2048, 8192};
  while (chunks.size() > 1 && chunks.back() > context) chunks.pop_back();
  return chunks;
}

}  // namespace

ModelPlan::ModelPlan(std::shared_ptr<const model::Manifest> manifest,
                     topology::Mesh mesh, PlanOptions options,
                     std::vector<RankDims> dims, Schedule schedule,
                     ExpertPlan experts, std::vector<StateLayout> states,
                     std::vector<ProgramShape> shapes)
    : manifest_(std::move(manifest)),
      mesh_(std::move(mesh)),
      options_(std::move(options)),
      dims_(std::move(dims)),
      schedule_(std::move(schedule)),
      weights_(*manifest_, mesh_, dims_),
      experts_(std::move(experts)),
      states_(std::move(states)),
      shapes_(std::move(shapes)) {}

tensor::DType ModelPlan::product_input(const ProgramShape& shape) const {
  constexpr int64_t kMaxFloatRows = 8;  // bound by memory up to here
  return mesh_.device(Rank(0)).is_gpu() && shape.rows > kMaxFloatRows
             ? tensor::DType::kBF16
             : tensor::DType::kF32;
}

Result<std::shared_ptr<const ModelPlan>> MakeModelPlan(
    std::shared_ptr<const model::Manifest> manifest, const topology::Mesh& mesh,
    const PlanOptions& options) {
  SIGNET_RETURN_IF_ERROR(Admit(manifest->config(), mesh, options));
  PlanOptions complete = options;
  if (complete.decode_buckets.empty()) {
    complete.decode_buckets = DefaultBuckets(options.batch);
  }
  if (complete.prefill_chunks.empty()) {
    complete.prefill_chunks = DefaultChunks(mesh, options.context);
  }
  std::vector<ProgramShape> shapes;
  for (const int64_t rows : complete.decode_buckets) {
    shapes.push_back({ShapeKind::kDecode, rows, LogitsOf::kEveryRow});
  }
  for (const int64_t rows : complete.prefill_chunks) {
    shapes.push_back(
        {ShapeKind::kPrefill, rows,
         complete.all_logits ? LogitsOf::kEveryRow : LogitsOf::kLastRow});
  }
  std::vector<RankDims> dims;
  std::vector<StateLayout> states;
  for (int r = 0; r < mesh.num_ranks(); ++r) {
    dims.push_back(DimsOf(manifest->config(), mesh, Rank(r)));
    const StateLayout& state = states.emplace_back(
        LayOutState(manifest->config(), dims.back(), complete));
    if (state.kv_bytes.overflowed() || state.recurrent_bytes.overflowed()) {
      return Reject(RejectionCode::kCapacityOverflow, "--ctx, --batch",
                    "the state of this many sequences does not fit 64 bits");
    }
  }
  Schedule schedule(manifest->config(), mesh);
  SIGNET_ASSIGN_OR_RETURN(
      ExpertPlan experts,
      ExpertPlan::Make(*manifest, mesh, dims, schedule, options.tp_experts));
  std::shared_ptr<ModelPlan> plan(
      new ModelPlan(std::move(manifest), mesh, std::move(complete),
                    std::move(dims), std::move(schedule), std::move(experts),
                    std::move(states), std::move(shapes)));
  plan->contract_text_ = ContractText(*plan);
  plan->contract_id_ = Digest::Of(plan->contract_text_);
  return plan;
}

}  // namespace signet::plan
