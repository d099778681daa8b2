#pragma once
// The plan of one model on one mesh: placement, shapes, state, schedule and
// the contract id. Made by MakeModelPlan alone; immutable; any thread.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/result.h"
#include "model/manifest.h"
#include "plan/expert_plan.h"
#include "plan/plan_options.h"
#include "plan/program_shape.h"
#include "plan/rank_dims.h"
#include "plan/schedule.h"
#include "plan/state_layout.h"
#include "plan/weight_plan.h"
#include "tensor/dtype.h"
#include "topology/mesh.h"

namespace signet::plan {

class ModelPlan {
 public:
  const model::Manifest& manifest() const { return *manifest_; }
  const std::shared_ptr<const model::Manifest>& manifest_ptr() const {
    return manifest_;
  }
  const model::ModelConfig& config() const { return manifest_->config(); }
  const topology::Mesh& mesh() const { return mesh_; }
  const PlanOptions& options() const { return options_; }
  const ExpertPlan& experts() const { return experts_; }
  const RankDims& dims(Rank rank) const {
    return dims_[static_cast<size_t>(rank.value())];
  }
  const WeightPlan& weights() const { return weights_; }
  const Schedule& schedule() const { return schedule_; }
  const StateLayout& state(Rank rank) const {
    return states_[static_cast<size_t>(rank.value())];
  }
  /// The dtype that the products of a shape read their inputs in, the router's
  /// excepted (N1): bf16 where the tensor cores multiply them.
  tensor::DType product_input(const ProgramShape& shape) const;
  KvPool pool() const { return PoolOf(options_); }
  /// Decode buckets ascending, then prefill chunks ascending.
  const std::vector<ProgramShape>& shapes() const { return shapes_; }
  /// The canonical text whose digest is the contract id (P6).
  const std::string& contract_text() const { return contract_text_; }
  const Digest& contract_id() const { return contract_id_; }

 private:
  friend Result<std::shared_ptr<const ModelPlan>> MakeModelPlan(
      std::shared_ptr<const model::Manifest> manifest,
      const topology::Mesh& mesh, const PlanOptions& options);
  ModelPlan(std::shared_ptr<const model::Manifest> manifest,
            topology::Mesh mesh, PlanOptions options,
            std::vector<RankDims> dims, Schedule schedule, ExpertPlan experts,
            std::vector<StateLayout> states, std::vector<ProgramShape> shapes);
  std::shared_ptr<const model::Manifest> manifest_;
  topology::Mesh mesh_;
  PlanOptions options_;
  std::vector<RankDims> dims_;  // [rank]
  Schedule schedule_;
  WeightPlan weights_;
  ExpertPlan experts_;
  std::vector<StateLayout> states_;  // [rank]
  std::vector<ProgramShape> shapes_;
  std::string contract_text_;
  Digest contract_id_;
};

/// Admission of the mesh (A2, M5), the options and the shapes, then the plan.
/// All refusals of a stage at once.
Result<std::shared_ptr<const ModelPlan>> MakeModelPlan(
    std::shared_ptr<const model::Manifest> manifest, const topology::Mesh& mesh,
    const PlanOptions& options);

}  // namespace signet::plan
