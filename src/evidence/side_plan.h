#pragma once
// One side of a comparison before anything of it runs: plan and sealed
// programs of every rank, from headers alone. A fault of the plan, the draft or
// the mesh enters here, and most are refused here.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "evidence/fault.h"
#include "model/manifest.h"
#include "plan/memory_plan.h"
#include "plan/model_plan.h"
#include "signet/plan.h"
#include "signet/source.h"
#include "step/program.h"
#include "topology/mesh.h"

namespace signet::evidence {

/// As the model's name is looked up and its files are opened everywhere.
Result<std::shared_ptr<const model::Manifest>> OpenManifest(
    const std::string& model, const SearchPaths& paths);

struct SideRequest {
  std::string mesh;
  std::string devices;  // empty: the first of the common ones
};

struct SideSpec {
  topology::MeshSpec mesh;
  std::vector<topology::DeviceIdentity> devices;  // one a rank
};

/// The common `devices` are as many as the largest mesh needs that brings none
/// of its own; a smaller mesh takes the first of them.
Result<std::vector<SideSpec>> ChooseSides(
    const std::vector<SideRequest>& requests, const std::string& devices);

/// What each side is planned with: prompts cut alike, the defaults of its
/// backend else. Sides that would keep KV in different dtypes are refused.
Result<std::vector<plan::PlanOptions>> OptionsOfSides(
    const std::vector<SideSpec>& specs, const PlanOptions& wanted);

/// The plan alone, as an honest side would have it.
Result<std::shared_ptr<const plan::ModelPlan>> PlanOfSide(
    const std::shared_ptr<const model::Manifest>& manifest,
    const SideSpec& spec, const plan::PlanOptions& options);

struct SidePlan {
  std::shared_ptr<const plan::ModelPlan> plan;
  std::vector<std::vector<step::SealedProgram>> programs;  // [rank][shape]
  plan::MemoryPlan memory;
};

/// Plans, lowers, seals and compares all ranks (F2). `fault` acts if set.
Result<SidePlan> MakeSidePlan(
    const std::shared_ptr<const model::Manifest>& manifest,
    const SideSpec& spec, const plan::PlanOptions& options,
    std::optional<Fault> fault);

}  // namespace signet::evidence
