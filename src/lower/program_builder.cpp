#include "lower/program_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "lower/launch_groups.h"
#include "plan/layouter.h"
#include "step/operands.h"

namespace signet::lower {

using step::BufferDecl;
using step::BufferKind;
using step::IoRole;
using tensor::DType;

ProgramBuilder::ProgramBuilder(const plan::ModelPlan& plan,
                               const plan::ProgramShape& shape, Rank rank,
                               step::Recipe recipe)
    : plan_(plan) {
  draft_.contract = plan.contract_id();
  draft_.rank = rank;
  draft_.recipe = recipe;
  draft_.shape = shape;
  draft_.live = Io(IoRole::kLive, BufferKind::kInput, DType::kI32, {1});
}

BufferId ProgramBuilder::Declare(BufferDecl decl) {
  decl.rank = draft_.rank;
  decl.size = decl.shape.StorageBytes(decl.dtype);
  return draft_.buffers.Push(std::move(decl));
}

BufferId ProgramBuilder::Io(IoRole role, BufferKind kind, DType dtype,
                            tensor::Shape shape) {
  for (size_t i = 0; i < draft_.buffers.size(); ++i) {
    const BufferId id(static_cast<int32_t>(i));
    if (draft_.buffers[id].io == role) return id;
  }
  // Constants and the page table outlive the call, so they lie where every
  // shape of the plan finds them: their sizes, and so their offsets, are equal.
  const bool lasting =
      kind == BufferKind::kConstant || role == IoRole::kPageTable;
  return Declare({.name = std::string("io.") + std::string(Name(role)),
                  .kind = kind,
                  .dtype = dtype,
                  .shape = shape,
                  .arena = lasting ? MemoryClass::kTables : MemoryClass::kIo,
                  .io = role});
}

BufferId ProgramBuilder::Slot() {
  return Io(IoRole::kSlot, BufferKind::kInput, DType::kI32, {rows()});
}

BufferId ProgramBuilder::Position() {
  return Io(IoRole::kPosition, BufferKind::kInput, DType::kI32, {rows()});
}

BufferId ProgramBuilder::PageTable() {
  return Io(IoRole::kPageTable, BufferKind::kInput, DType::kI32,
            {plan_.options().batch, plan_.pool().pages_per_slot});
}

BufferId ProgramBuilder::Flag() {
  return Io(IoRole::kFlags, BufferKind::kFlag, DType::kI32, {1});
}

BufferId ProgramBuilder::Weight(model::Role role,
                                std::optional<LayerId> layer) {
  const std::optional<WeightId> id = plan_.manifest().Find(role, layer);
  SIGNET_CHECK(id.has_value());
  const model::WeightEntry& entry = plan_.manifest().weights()[*id];
  const std::string name =
      layer ? fmt::format("w.{}.{}", layer->value(), Name(role))
            : fmt::format("w.{}", Name(role));
  const plan::WeightShard& shard = plan_.weights().shard(*id, draft_.rank);
  return Declare(
      {.name = name,
       .kind = BufferKind::kWeight,
       .dtype = entry.dtype,
       .shape = shard.shape,
       .basis = entry.input_basis,
       .part = shard.cut ? DensePart() : step::Part::Whole(),
       .arena = shard.own ? MemoryClass::kDense : MemoryClass::kMapped,
       .offset_bytes = shard.offset_bytes,
       .weight = step::WeightRef{.weight = *id}});
}

step::Part ProgramBuilder::DensePart() const {
  return dims().parts > 1 ? step::Part::Shard(topology::Axis::kTp)
                          : step::Part::Whole();
}

step::GroupRef ProgramBuilder::Group(topology::Axis axis) const {
  const topology::Mesh& mesh = plan_.mesh();
  return {.axis = axis,
          .ranks = mesh.Group(axis, draft_.rank),
          .epoch = mesh.epoch()};
}

step::Part PartOf(const plan::ExpertView& view) {
  return view->parallelism == plan::Parallelism::kSingle
             ? step::Part::Whole()
             : step::Part::Shard(view->axis);
}

step::Part SlotPartOf(const plan::ExpertView& view) {
  return view->parallelism == plan::Parallelism::kSplit ? step::Part::Whole()
                                                        : PartOf(view);
}

step::Part DownPartOf(const plan::ExpertView& view) {
  return view->parallelism == plan::Parallelism::kSplit
             ? step::Part::Partial(view->axis)
             : PartOf(view);
}

BufferId ProgramBuilder::Experts(const plan::ExpertView& view,
                                 step::ExpertPart which) {
  const bool gate_up = which == step::ExpertPart::kGateUp;
  const bool own_memory = view->own_memory;
  const tensor::Shape shape =
      gate_up
          ? tensor::Shape{view->num_local, 2 * view->local_width, view->hidden}
          : tensor::Shape{view->num_local, view->hidden, view->local_width};
  return Declare(
      {.name = fmt::format("w.{}.experts.{}", view->layer.value(),
                           gate_up ? "gate_up" : "down"),
       .kind = BufferKind::kExperts,
       .dtype = gate_up ? view->gate_up_dtype : view->down_dtype,
       .shape = shape,
       .basis = gate_up ? view->gate_up_basis : view->down_basis,
       .part = PartOf(view),
       .arena = own_memory ? MemoryClass::kExperts : MemoryClass::kMapped,
       .offset_bytes = !own_memory ? 0
                       : gate_up   ? view->gate_up_offset_bytes
                                   : view->down_offset_bytes,
       .weight = step::WeightRef{.expert_layer = view->layer, .part = which}});
}

BufferId ProgramBuilder::State(const std::string& name,
                               const plan::StateBuffer& buffer) {
  return Declare({.name = name,
                  .kind = BufferKind::kState,
                  .dtype = buffer.dtype,
                  .shape = buffer.shape,
                  .part = DensePart(),
                  .arena = buffer.arena,
                  .offset_bytes = buffer.offset_bytes});
}

BufferId ProgramBuilder::Work(const std::string& name, int64_t width,
                              step::Part part) {
  return Declare({.name = name, .shape = {rows(), width}, .part = part});
}

BufferId ProgramBuilder::Work(const std::string& name, DType dtype,
                              tensor::Shape shape, step::Part part,
                              tensor::Basis basis) {
  return Declare({.name = name,
                  .dtype = dtype,
                  .shape = shape,
                  .basis = basis,
                  .part = part});
}

BufferId ProgramBuilder::Input(BufferId x) {
  if (product_input() == draft_.buffers[x].dtype) return x;
  const auto rounded = rounded_.find(x);
  if (rounded != rounded_.end()) return rounded->second;
  const BufferDecl source = draft_.buffers[x];
  const BufferId out = Work(source.name + ".rounded", product_input(),
                            source.shape, source.part, source.basis);
  Append(step::Round{.x = x, .out = out});
  rounded_.emplace(x, out);
  return out;
}

BufferId ProgramBuilder::Project(const std::string& name, BufferId x,
                                 model::Role role,
                                 std::optional<LayerId> layer) {
  if (role != model::Role::kRouter) x = Input(x);
  const BufferId weight = Weight(role, layer);
  const step::Part held = draft_.buffers[weight].part;
  const bool addends =
      held.kind == step::PartKind::kShard && draft_.buffers[x].part == held;
  const BufferId out = Work(name, draft_.buffers[weight].shape[0],
                            addends ? step::Part::Partial(held.axis) : held);
  Append(step::Projection{.x = x, .weight = weight, .out = out});
  return out;
}

Result<step::ProgramDraft> ProgramBuilder::Finish() && {
  struct Lifetime {
    int64_t first = -1;
    int64_t last = -1;
  };
  const auto num_steps = static_cast<int64_t>(draft_.steps.size());
  IdVector<BufferId, Lifetime> lifetimes(draft_.buffers.size());
  // A GPU may run the steps of a group at once; the CPU runs one by one.
  std::vector<LaunchGroup> groups = LaunchGroupsOf(draft_.steps);
  if (!plan_.mesh().device(draft_.rank).is_gpu()) {
    for (int64_t i = 0; i < num_steps; ++i) {
      groups[static_cast<size_t>(i)] = {i, i};
    }
  }
  for (size_t i = 0; i < draft_.steps.size(); ++i) {
    step::ForEachOperand(draft_.steps[i],
                         [&](std::string_view, BufferId id, step::Access) {
                           Lifetime& lifetime = lifetimes[id];
                           if (lifetime.first < 0) {
                             lifetime.first = groups[i].first;
                           }
                           lifetime.last = groups[i].last;
                         });
  }

  for (const MemoryClass arena :
       {MemoryClass::kWorkspace, MemoryClass::kIo, MemoryClass::kTables}) {
    std::vector<plan::LayoutRequest> requests;
    std::vector<BufferId> ids;
    for (size_t i = 0; i < draft_.buffers.size(); ++i) {
      const BufferId id(static_cast<int32_t>(i));
      const BufferDecl& buffer = draft_.buffers[id];
      if (buffer.arena != arena) continue;
      if (buffer.size.overflowed()) {
        return Reject(RejectionCode::kCapacityOverflow, buffer.name,
                      "a buffer of this shape does not fit 64 bits",
                      ToString(buffer.shape));
      }
      // What the executor writes or reads lives around the call.
      const bool whole_call = arena != MemoryClass::kWorkspace;
      requests.push_back(
          {.size = buffer.size,
           .alignment = plan::kBufferAlignment,
           .first_step = whole_call ? 0 : lifetimes[id].first,
           .last_step = whole_call ? num_steps : lifetimes[id].last});
      ids.push_back(id);
    }
    const plan::Layout layout = plan::LayOut(requests);
    if (layout.total.overflowed()) {
      return Reject(RejectionCode::kCapacityOverflow, std::string(Name(arena)),
                    "the buffers of this shape do not fit 64 bits",
                    std::to_string(draft_.shape.rows));
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      draft_.buffers[ids[i]].offset_bytes = layout.offsets[i];
    }
    draft_.arena_bytes[arena] = layout.total;
  }
  const auto weights = [this](MemoryClass memory_class, Bytes bytes) {
    if (bytes > Bytes()) draft_.arena_bytes[memory_class] = bytes;
  };
  weights(MemoryClass::kExperts, plan_.experts().OwnExpertBytes(draft_.rank));
  weights(MemoryClass::kDense, plan_.weights().dense_bytes(draft_.rank));
  const plan::StateLayout& state = plan_.state(draft_.rank);
  draft_.arena_bytes[MemoryClass::kKv] = state.kv_bytes;
  draft_.arena_bytes[MemoryClass::kRecurrent] = state.recurrent_bytes;
  return std::move(draft_);
}

}  // namespace signet::lower
