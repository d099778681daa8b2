#pragma once
// The phases of sealing, one function each; the rules are listed at the head of
// step/seal.cpp. A phase assumes that the ones before it found nothing, and
// reports all that it finds itself.

#include "model/manifest.h"
#include "model/rejection_cap.h"
#include "plan/expert_plan.h"
#include "plan/model_plan.h"
#include "step/program.h"
#include "topology/axis.h"
#include "topology/mesh.h"

namespace signet::step::rules {

using Findings = model::CappedRejections;

/// What dataflow and placement know of the mesh: all of S3 and S6 can be tried
/// on meshes that no plan is made for yet.
struct MeshContext {
  const topology::Mesh* mesh;  // outlives the check
  plan::Parallelism parallelism = plan::Parallelism::kSingle;
  topology::Axis expert_axis = topology::Axis::kEp;  // of combine's partial
};

MeshContext ContextOf(const plan::ModelPlan& plan, Rank rank);

void CheckStructure(const ProgramDraft& draft, const plan::ModelPlan& plan,
                    Findings& findings);  // S1, G2 - G4
void CheckTypes(const ProgramDraft& draft, const plan::ModelPlan& plan,
                Findings& findings);  // S2
void CheckDataflow(const ProgramDraft& draft, const MeshContext& context,
                   Findings& findings);                             // S3
void CheckCapacity(const ProgramDraft& draft, Findings& findings);  // S4
/// `manifest` tells which weights are aliases of one another; may be null.
void CheckAliasing(const ProgramDraft& draft, const model::Manifest* manifest,
                   Findings& findings);  // S5
void CheckPlacement(const ProgramDraft& draft, const MeshContext& context,
                    Findings& findings);  // S6

}  // namespace signet::step::rules
