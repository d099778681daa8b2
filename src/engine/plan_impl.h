#pragma once
// What a public Plan holds: the plan, its sealed programs and its memory.

#include <memory>
#include <string>
#include <vector>

#include "engine/source_impl.h"
#include "engine/world_impl.h"
#include "plan/memory_plan.h"
#include "plan/model_plan.h"
#include "signet/plan.h"
#include "step/program.h"

namespace signet {

struct Plan::Impl {
  std::shared_ptr<const Source::Impl> source;
  std::shared_ptr<const plan::ModelPlan> plan;
  std::vector<std::vector<step::SealedProgram>> programs;  // [rank][shape]
  SealingFigures sealing;
  plan::MemoryPlan memory;
  std::string contract_id;
  std::vector<std::string> devices;    // [rank], `cpu:0`
  Result<void> admission;              // when the plan was made
  std::shared_ptr<World::Impl> world;  // null: all ranks are threads here
  std::string epoch;                   // of the mesh, between processes

  /// Whether the rank runs in this process.
  bool IsHere(Rank rank) const {
    return world == nullptr || world->world->rank() == rank.value();
  }
};

plan::PlanOptions RoomOptions(const PlanOptions& options, bool on_gpu);

/// The programs of one rank, one a shape of the plan.
Result<std::vector<step::ProgramDraft>> LowerRank(const plan::ModelPlan& plan,
                                                  Rank rank);

/// What each arena must hold for any of the programs.
plan::ClassBytes LargestArenas(const std::vector<step::ProgramDraft>& drafts);

/// Memory against what the mesh's devices can give now.
Result<void> AdmitNow(const plan::ModelPlan& plan,
                      const plan::MemoryPlan& memory);

}  // namespace signet
