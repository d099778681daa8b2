#include "evidence/side_plan.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "engine/devices.h"
#include "engine/plan_impl.h"
#include "evidence/other_k.h"
#include "exec/preflight.h"
#include "lower/lower.h"
#include "model/registry.h"

namespace signet::evidence {
namespace {

using PlanPtr = std::shared_ptr<const plan::ModelPlan>;
using ManifestPtr = std::shared_ptr<const model::Manifest>;

// Who writes a rank's program, and by whose plan it is sealed.
struct Authors {
  PlanPtr lowers;
  PlanPtr seals;
};

class Planner {
 public:
  Planner(const ManifestPtr& manifest, const SideSpec& spec,
          const plan::PlanOptions& options, std::optional<Fault> fault)
      : manifest_(manifest), spec_(spec), options_(options), fault_(fault) {}

  Result<SidePlan> Make() {
    SidePlan side;
    SIGNET_ASSIGN_OR_RETURN(side.plan, MakePlan(manifest_));
    if (fault_ == Fault::kSwapExperts &&
        (manifest_->expert_groups().empty() ||
         manifest_->expert_groups().front().num_experts < 2)) {
      return NoPlaceFor(*fault_, spec_.mesh);
    }
    std::vector<plan::ClassBytes> arenas;
    RejectionList rejections;
    bool acted = false;
    for (int r = 0; r < side.plan->mesh().num_ranks(); ++r) {
      SIGNET_ASSIGN_OR_RETURN(const Authors authors,
                              AuthorsOf(side.plan, Rank(r)));
      SIGNET_ASSIGN_OR_RETURN(std::vector<step::ProgramDraft> drafts,
                              LowerRank(*authors.lowers, Rank(r)));
      arenas.push_back(LargestArenas(drafts));
      std::vector<step::SealedProgram>& programs = side.programs.emplace_back();
      for (step::ProgramDraft& draft : drafts) {
        if (fault_) acted = EditDraft(*fault_, draft) || acted;
        Result<step::SealedProgram> program =
            step::Seal(std::move(draft), *authors.seals);
        if (program) {
          programs.push_back(*std::move(program));
        } else {
          rejections.Absorb(std::move(program).error());
        }
      }
    }
    if (fault_ && !acted) return NoPlaceFor(*fault_, spec_.mesh);
    if (!rejections.empty()) return rejections.Take();
    std::vector<std::span<const step::SealedProgram>> programs(
        side.programs.begin(), side.programs.end());
    SIGNET_RETURN_IF_ERROR(exec::Preflight(*side.plan, programs));
    side.memory = plan::PlanMemory(*side.plan, arenas);
    return side;
  }

  // Every call makes a mesh of its own epoch.
  Result<PlanPtr> MakePlan(const ManifestPtr& manifest) const {
    SIGNET_ASSIGN_OR_RETURN(const topology::Mesh mesh, MakeMesh());
    return plan::MakeModelPlan(manifest, mesh, options_);
  }

 private:
  Result<topology::Mesh> MakeMesh() const {
    std::vector<topology::DeviceIdentity> devices = spec_.devices;
    if (fault_ == Fault::kDuplicateDevice) {
      if (devices.size() < 2) return NoPlaceFor(*fault_, spec_.mesh);
      devices.back() = devices.front();
    }
    return topology::Mesh::Make(spec_.mesh, std::move(devices),
                                topology::Emulation::kRefused);
  }

  Result<Authors> AuthorsOf(const PlanPtr& plan, Rank rank) const {
    if (fault_ == Fault::kStaleEpoch) {
      SIGNET_ASSIGN_OR_RETURN(PlanPtr stale, MakePlan(manifest_));
      return Authors{std::move(stale), plan};
    }
    if (fault_ == Fault::kOtherK &&
        rank.value() + 1 == plan->mesh().num_ranks()) {
      SIGNET_ASSIGN_OR_RETURN(const ManifestPtr manifest, OtherK(*manifest_));
      if (!manifest) return NoPlaceFor(*fault_, spec_.mesh);
      SIGNET_ASSIGN_OR_RETURN(const PlanPtr other, MakePlan(manifest));
      return Authors{other, other};
    }
    return Authors{plan, plan};
  }

  const ManifestPtr& manifest_;
  const SideSpec& spec_;
  const plan::PlanOptions& options_;
  std::optional<Fault> fault_;
};

}  // namespace

Result<ManifestPtr> OpenManifest(const std::string& model,
                                 const SearchPaths& paths) {
  SIGNET_ASSIGN_OR_RETURN(const std::filesystem::path folder,
                          model::Resolve(model, {.models = paths.models,
                                                 .hub = paths.hub,
                                                 .demo = paths.demo}));
  SIGNET_ASSIGN_OR_RETURN(model::Checkpoint opened,
                          model::Checkpoint::Open(folder));
  return model::BuildManifest(
      std::make_shared<const model::Checkpoint>(std::move(opened)));
}

Result<std::vector<SideSpec>> ChooseSides(
    const std::vector<SideRequest>& requests, const std::string& devices) {
  std::vector<SideSpec> specs;
  int64_t largest = 0;
  for (const SideRequest& side : requests) {
    SIGNET_ASSIGN_OR_RETURN(topology::MeshSpec mesh,
                            topology::MeshSpec::Parse(side.mesh));
    if (side.devices.empty()) largest = std::max(largest, mesh.num_ranks());
    specs.push_back({.mesh = std::move(mesh), .devices = {}});
  }
  std::vector<topology::DeviceIdentity> common;
  if (largest > 0) {
    SIGNET_ASSIGN_OR_RETURN(common, ChooseDevices(devices, largest));
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    SideSpec& spec = specs[i];
    const int64_t ranks = spec.mesh.num_ranks();
    if (!requests[i].devices.empty()) {
      SIGNET_ASSIGN_OR_RETURN(spec.devices,
                              ChooseDevices(requests[i].devices, ranks));
      continue;
    }
    // A list of another length than the largest mesh is refused with it.
    spec.devices = common;
    if (ranks<largest&& static_cast<int64_t>(common.size())> ranks) {
      spec.devices.resize(static_cast<size_t>(ranks));
    }
  }
  return specs;
}

Result<std::vector<plan::PlanOptions>> OptionsOfSides(
    const std::vector<SideSpec>& specs, const PlanOptions& wanted) {
  std::vector<plan::PlanOptions> options;
  for (const SideSpec& spec : specs) {
    options.push_back(RoomOptions(wanted, spec.devices.front().is_gpu()));
    const topology::DeviceIdentity& first = specs.front().devices.front();
    if (spec.devices.front().backend == first.backend) continue;
    if (options.back().kv_dtype != options.front().kv_dtype) {
      return Reject(RejectionCode::kPlanOptionInvalid, "--kv",
                    "the sides would keep keys and values in different dtypes",
                    std::string(Name(options.back().kv_dtype)),
                    std::string(Name(options.front().kv_dtype)));
    }
  }
  // A prompt is cut alike on all sides, whatever the defaults of backends: into
  // chunks whose products no backend rounds the inputs of (bounds.h).
  const bool mixed =
      std::any_of(specs.begin(), specs.end(), [&](const SideSpec& spec) {
        return spec.devices.front().backend !=
               specs.front().devices.front().backend;
      });
  for (plan::PlanOptions& side : options) {
    if (mixed && side.prefill_chunks.empty()) side.prefill_chunks = {8};
  }
  return options;
}

Result<PlanPtr> PlanOfSide(const ManifestPtr& manifest, const SideSpec& spec,
                           const plan::PlanOptions& options) {
  return Planner(manifest, spec, options, std::nullopt).MakePlan(manifest);
}

Result<SidePlan> MakeSidePlan(
    const std::shared_ptr<const model::Manifest>& manifest,
    const SideSpec& spec, const plan::PlanOptions& options,
    std::optional<Fault> fault) {
  return Planner(manifest, spec, options, fault).Make();
}

}  // namespace signet::evidence
