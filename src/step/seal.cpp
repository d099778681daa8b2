// The rules a program must pass to be sealed, in the order they are proven. A
// phase runs only when the ones before it found nothing, and reports all that
// it finds. Contract ids in front; the code of a refusal behind.
//
// S1 structure (rules/structure.cpp, routed_blocks.cpp, collectives.cpp)
//   S1  A program has steps. [program_empty]
//   S1  Its contract, rank, shape and layer are the plan's.
//       [program_header_mismatch]
//   S1  Every operand names a buffer; buffer names are distinct words.
//       [buffer_unknown]
//   S1  A buffer's kind, arena, weight and io role agree; an io role is held by
//       one buffer. [operand_role]
//   G3  The MoE steps are routed blocks, each exactly one of the two grammars,
//       one a layer with experts, in the order of the layers; the router is the
//       recipe's. [grammar_broken]
//   G4  The operands of a block belong to one route and one owner view.
//       [route_link_broken]
//   S1  A collective is the one of its schedule row, each row once, in order,
//       and the row concerns the rank. [collective_unscheduled]
//   S1  Every schedule row that concerns the rank has its collective.
//       [collective_missing]
//   G4  The reduction of a block reads its combine, or a sum it entered.
//       [route_link_broken]
//
// S2 types (rules/types*.cpp)
//   S2  Every operand has the dtype, rank-local shape and basis that follow
//       from the model, the owner view, B and the tile height; the output basis
//       of an expert activation is that of down's input.
//       [operand_dtype, operand_shape, operand_basis]
//   S2  Inputs, outputs, state and flags are the ones their place wants.
//       [operand_role]
//   P3  A weight that the plan cuts is the rank's shard, in its memory and
//       declared as its part; one it does not cut is mapped and whole.
//       [operand_shape, operand_role, shard_misread]
//   X7  A broadcast is fed by its root alone, a transfer read by its target
//       alone; one rank draws the token. [step_attribute]
//   S2  Attributes are the model's. [step_attribute]
//   S2  Recipe: every weight is read once, by the product of its role and
//       layer, on what the recipe has there; the residual passes through mixer
//       and feed-forward part of each layer of the stage in turn.
//       [weight_recipe]
//   P5  Grouped buffers hold the rows of the worst routing. [operand_shape]
//
// S3 dataflow (rules/dataflow.cpp, parts*.cpp)
//   S3  A work buffer is written before it is read; state is read after the
//       call has updated it. [read_before_write]
//   S3  It has one writer; weights and inputs have none; state is updated
//       once, flags only or-ed into. [written_twice]
//   S3  Addends meet a step that needs the sum only after their reduction, and
//       are reduced. [partial_unreduced]
//   S3  They enter one reduction or sum, once. [partial_reduced_twice]
//   S3  What is equal on all ranks enters no reduced range.
//       [whole_in_reduced_range]
//   S3  A shard is read only by steps on the same part of the same axis.
//       [shard_misread]
//
// S4 capacity (rules/capacity.cpp)
//   S4  A buffer has the bytes of its shape. [buffer_too_small]
//   S4  It lies aligned within its arena. [arena_overrun]
//
// S5 aliasing (rules/aliasing.cpp)
//   S5  Buffers that live at one time share no byte of an arena, except the
//       declared in-place pair of a step, over exactly one range, and two names
//       of one weight. [buffers_overlap]
//
// S6 placement (rules/placement.cpp)
//   S6  Every buffer lies on the program's rank. [arena_of_other_rank]
//   S6  A group's axis, ranks and element count are the mesh's.
//       [group_mismatch]
//   M3  Its epoch is the mesh's. [epoch_stale]

#include "step/seal.h"

#include <functional>
#include <optional>
#include <utility>

#include "base/digest.h"
#include "step/rules/rules.h"

namespace signet::step {
namespace rules {

MeshContext ContextOf(const plan::ModelPlan& plan, Rank rank) {
  MeshContext context{.mesh = &plan.mesh()};
  // The experts of all layers are spread alike; other stages have no view.
  for (const model::ExpertGroup& group : plan.manifest().expert_groups()) {
    const plan::ExpertView* view = plan.experts().View(group.layer, rank);
    if (view == nullptr) continue;
    context.parallelism = (*view)->parallelism;
    context.expert_axis = (*view)->axis;
    break;
  }
  return context;
}

}  // namespace rules

namespace {

struct Phase {
  const char* name;
  std::function<void(rules::Findings&)> check;
};

}  // namespace

Result<SealedProgram> Sealer::Seal(ProgramDraft draft,
                                   const plan::ModelPlan& plan) {
  using rules::Findings;
  // Its rank is proven by the first phase.
  const auto context = [&] { return rules::ContextOf(plan, draft.rank); };
  const Phase phases[] = {
      {"structure",
       [&](Findings& f) { rules::CheckStructure(draft, plan, f); }},
      {"types", [&](Findings& f) { rules::CheckTypes(draft, plan, f); }},
      {"dataflow",
       [&](Findings& f) { rules::CheckDataflow(draft, context(), f); }},
      {"capacity", [&](Findings& f) { rules::CheckCapacity(draft, f); }},
      {"aliasing",
       [&](Findings& f) { rules::CheckAliasing(draft, &plan.manifest(), f); }},
      {"placement",
       [&](Findings& f) { rules::CheckPlacement(draft, context(), f); }},
  };
  for (const Phase& phase : phases) {
    Findings findings;
    phase.check(findings);
    if (findings.empty()) continue;
    RejectionList list;
    findings.FlushInto(phase.name, &list);
    return list.Take();
  }
  std::string text = ToText(draft);
  const Digest id = Digest::Of(text);
  return SealedProgram(PassKey<Sealer>(), std::move(draft), id,
                       std::move(text));
}

Result<SealedProgram> Seal(ProgramDraft draft, const plan::ModelPlan& plan) {
  return Sealer::Seal(std::move(draft), plan);
}

SealedProgram::SealedProgram(PassKey<Sealer>, ProgramDraft draft, Digest id,
                             std::string text)
    : draft_(std::move(draft)), id_(id), text_(std::move(text)) {}

std::optional<BufferId> SealedProgram::FindIo(IoRole role) const {
  for (size_t i = 0; i < draft_.buffers.size(); ++i) {
    const BufferId id(static_cast<int32_t>(i));
    if (draft_.buffers[id].io == role) return id;
  }
  return std::nullopt;
}

}  // namespace signet::step
