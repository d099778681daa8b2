// S2: the walk, the declared weights, the recipe's totals, and the checks that
// every step's rule is made of.

#include "step/rules/types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "step/rules/location.h"

namespace signet::step::rules {
namespace {

constexpr std::array<std::string_view, 36> kValueNames = {
    "nothing",
    "the residual",
    "the mixer's input",
    "queries and gates",
    "keys",
    "values",
    "rotated queries",
    "rotated keys",
    "the attention's output",
    "the convolution's input",
    "output gates",
    "write strengths",
    "decays",
    "the convolution's output",
    "the delta rule's output",
    "the normed output of the delta rule",
    "the mixer's output",
    "the feed-forward input",
    "router scores",
    "expert ids",
    "router weights",
    "rows of experts",
    "the routed sum",
    "the shared expert's gate",
    "the shared expert's up",
    "the shared expert's activation",
    "the shared expert's output",
    "the shared expert's scale",
    "the dense gate",
    "the dense up",
    "the dense activation",
    "the feed-forward output",
    "the final norm",
    "logits",
    "sampled ids",
    "scratch"};
static_assert(kValueNames.size() == static_cast<size_t>(Value::kScratch) + 1);

std::string Spell(Meaning meaning) {
  return fmt::format("{} at {}", Name(meaning.value), meaning.at);
}

}  // namespace

std::string_view Name(Value value) {
  return kValueNames[static_cast<size_t>(value)];
}

TypeRules::TypeRules(const ProgramDraft& draft, const plan::ModelPlan& plan,
                     Findings& findings)
    : draft_(draft),
      plan_(plan),
      config_(plan.config()),
      dims_(plan.dims(draft.rank)),
      findings_(findings),
      rows_(draft.shape.rows),
      blocks_(FindRoutedBlocks(draft, nullptr)),
      block_of_step_(draft.steps.size(), -1),
      meanings_(draft.buffers.size()),
      weight_uses_(plan.manifest().weights().size()) {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const RoutedBlock& block = blocks_[i];
    for (const size_t step :
         {block.route, block.scatter.value_or(block.route), block.gate_up,
          block.unscatter.value_or(block.route), block.activation, block.down,
          block.combine}) {
      block_of_step_[step] = static_cast<int32_t>(i);
    }
  }
}

void TypeRules::Run() {
  CheckDeclaredWeights();
  CheckLive();
  if (draft_.recipe.kind == Recipe::Kind::kRoutedBlock) {
    for (size_t i = 0; i < draft_.buffers.size(); ++i) {
      const BufferId id(static_cast<int32_t>(i));
      if (draft_.buffers[id].io == IoRole::kBlockInput) {
        Give(id, {Value::kMlpInput, draft_.recipe.layer->value()});
      }
    }
  }
  for (index_ = 0; index_ < draft_.steps.size(); ++index_) {
    std::visit(*this, draft_.steps[index_]);
  }
  CheckWeightUses();
  CheckOutputs();
}

void TypeRules::CheckLive() {
  const BufferDecl& live = draft_.buffers[draft_.live];
  const std::string where = Locate(draft_, draft_.live);
  if (live.io != IoRole::kLive) {
    findings_.Add(RejectionCode::kOperandRole, where,
                  "the live row count is another buffer",
                  std::string(live.io ? Name(*live.io) : Name(live.kind)),
                  "live");
    return;
  }
  CheckType(where, live, DType::kI32, {1}, Basis::kNatural);
}

void TypeRules::CheckDeclaredWeights() {
  for (size_t i = 0; i < draft_.buffers.size(); ++i) {
    const BufferId id(static_cast<int32_t>(i));
    const BufferDecl& buffer = draft_.buffers[id];
    if (buffer.kind == BufferKind::kExperts) CheckDeclaredExperts(id);
    if (buffer.kind != BufferKind::kWeight) continue;
    const WeightId weight = *buffer.weight->weight;
    const model::WeightEntry& entry = plan_.manifest().weights()[weight];
    const plan::WeightShard& shard = plan_.weights().shard(weight, draft_.rank);
    CheckType(Locate(draft_, id), buffer, entry.dtype, shard.shape,
              entry.input_basis);
    CheckHeld(id, shard.own ? MemoryClass::kDense : MemoryClass::kMapped,
              shard.offset_bytes,
              shard.cut ? Part::Shard(topology::Axis::kTp) : Part::Whole());
  }
}

void TypeRules::CheckHeld(BufferId id, MemoryClass arena, uint64_t offset_bytes,
                          Part part) {
  const BufferDecl& buffer = draft_.buffers[id];
  if (buffer.arena != arena || buffer.offset_bytes != offset_bytes) {
    findings_.Add(
        RejectionCode::kOperandRole, Locate(draft_, id),
        "a weight does not lie where the plan has it",
        fmt::format("{} of {}", buffer.offset_bytes, Name(buffer.arena)),
        fmt::format("{} of {}", offset_bytes, Name(arena)));
  }
  if (buffer.part != part) {
    findings_.Add(RejectionCode::kShardMisread, Locate(draft_, id),
                  "the ranks do not hold a weight so", ToString(buffer.part),
                  ToString(part));
  }
}

void TypeRules::CheckDeclaredExperts(BufferId id) {
  const BufferDecl& buffer = draft_.buffers[id];
  const plan::ExpertView* found =
      plan_.experts().View(*buffer.weight->expert_layer, draft_.rank);
  if (found == nullptr) return;  // S1 proves the layers of the blocks
  const plan::ExpertView& experts = *found;
  const bool gate_up = buffer.weight->part == ExpertPart::kGateUp;
  const DType dtype = gate_up ? experts->gate_up_dtype : experts->down_dtype;
  const Basis basis = gate_up ? experts->gate_up_basis : experts->down_basis;
  const Shape shape =
      gate_up
          ? Shape{experts->num_local, 2 * experts->local_width, experts->hidden}
          : Shape{experts->num_local, experts->hidden, experts->local_width};
  CheckType(Locate(draft_, id), buffer, dtype, shape, basis);
  const bool own = experts->own_memory;
  const uint64_t offset_bytes =
      gate_up ? experts->gate_up_offset_bytes : experts->down_offset_bytes;
  CheckHeld(id, own ? MemoryClass::kExperts : MemoryClass::kMapped,
            own ? offset_bytes : 0,
            experts->parallelism == plan::Parallelism::kSingle
                ? Part::Whole()
                : Part::Shard(experts->axis));
}

void TypeRules::CheckWeightUses() {
  std::optional<WeightId> router;
  if (draft_.recipe.kind == Recipe::Kind::kRoutedBlock &&
      draft_.recipe.router == RouterKind::kSoftmaxTopK) {
    router = plan_.manifest().FindExperts(*draft_.recipe.layer)->router;
  }
  const bool is_model = draft_.recipe.kind == Recipe::Kind::kModel;
  for (size_t i = 0; i < weight_uses_.size(); ++i) {
    const WeightId id(static_cast<int32_t>(i));
    const bool held = plan_.weights().shard(id, draft_.rank).held;
    const int32_t want = (is_model && held) || router == id ? 1 : 0;
    if (weight_uses_[id] == want) continue;
    findings_.Add(RejectionCode::kWeightRecipe,
                  plan_.manifest().weights()[id].name,
                  "a weight is not used as often as the recipe has it",
                  std::to_string(weight_uses_[id]), std::to_string(want));
  }
}

void TypeRules::CheckOutputs() {
  if (draft_.recipe.kind == Recipe::Kind::kModel) {
    Output(IoRole::kSampled, {Value::kSampled, 0});
  } else {
    Output(IoRole::kBlockOutput,
           {Value::kRouted, draft_.recipe.layer->value()});
  }
  for (size_t i = 0; i < draft_.buffers.size(); ++i) {
    const BufferId id(static_cast<int32_t>(i));
    if (draft_.buffers[id].io != IoRole::kLogits) continue;
    Output(IoRole::kLogits, {Value::kLogits, 0});
  }
}

void TypeRules::Output(IoRole role, Meaning want) {
  for (size_t i = 0; i < draft_.buffers.size(); ++i) {
    const BufferId id(static_cast<int32_t>(i));
    if (draft_.buffers[id].io != role) continue;
    const Meaning got = MeaningOf(id);
    if (got == want || got.value == Value::kUnknown) return;
    findings_.Add(RejectionCode::kOperandRole, Locate(draft_, id),
                  "an output of the program holds something else", Spell(got),
                  Spell(want));
    return;
  }
  findings_.Add(RejectionCode::kOperandRole, "program",
                "the program lacks an output", "none", std::string(Name(role)));
}

void TypeRules::Type(std::string_view operand, BufferId id, DType dtype,
                     const Shape& shape, Basis basis) {
  const BufferDecl& buffer = draft_.buffers[id];
  if (buffer.dtype == dtype && buffer.shape == shape && buffer.basis == basis) {
    return;
  }
  CheckType(Locate(draft_, index_, operand, id), buffer, dtype, shape, basis);
}

void TypeRules::CheckType(const std::string& where, const BufferDecl& buffer,
                          DType dtype, const Shape& shape, Basis basis) {
  if (buffer.dtype != dtype) {
    findings_.Add(RejectionCode::kOperandDType, where, "the dtype is wrong",
                  std::string(Name(buffer.dtype)), std::string(Name(dtype)));
  }
  if (buffer.shape != shape) {
    findings_.Add(RejectionCode::kOperandShape, where, "the shape is wrong",
                  ToString(buffer.shape), ToString(shape));
  }
  if (buffer.basis != basis) {
    findings_.Add(RejectionCode::kOperandBasis, where, "the basis is wrong",
                  std::string(Name(buffer.basis)), std::string(Name(basis)));
  }
}

void TypeRules::Rows(std::string_view operand, BufferId id, int64_t width,
                     Basis basis) {
  Type(operand, id, DType::kF32, {rows_, width}, basis);
}

void TypeRules::Inputs(std::string_view operand, BufferId id, int64_t rows,
                       int64_t width, Basis basis) {
  Type(operand, id, plan_.product_input(draft_.shape), {rows, width}, basis);
}

void TypeRules::Need(std::string_view operand, BufferId id, Meaning want) {
  const Meaning got = MeaningOf(id);
  if (got == want) return;
  if (got.value == Value::kUnknown) {
    const BufferKind kind = draft_.buffers[id].kind;
    if (kind == BufferKind::kWork) return;
    Refuse(RejectionCode::kOperandRole, operand, id,
           "an operand is of the wrong kind", std::string(Name(kind)),
           Spell(want));
    return;
  }
  Refuse(RejectionCode::kWeightRecipe, operand, id,
         "an operand is not what the recipe reads here", Spell(got),
         Spell(want));
}

const model::WeightEntry* TypeRules::Weight(
    std::string_view operand, BufferId id,
    std::initializer_list<model::Role> roles) {
  const BufferDecl& buffer = draft_.buffers[id];
  if (buffer.kind != BufferKind::kWeight) {
    Refuse(RejectionCode::kOperandRole, operand, id,
           "an operand is not a weight", std::string(Name(buffer.kind)),
           "weight");
    return nullptr;
  }
  ++weight_uses_[*buffer.weight->weight];
  const model::WeightEntry& entry =
      plan_.manifest().weights()[*buffer.weight->weight];
  if (std::find(roles.begin(), roles.end(), entry.role) != roles.end()) {
    return &entry;
  }
  Refuse(RejectionCode::kWeightRecipe, operand, id,
         "a weight has no such place in the recipe",
         std::string(Name(entry.role)));
  return nullptr;
}

void TypeRules::Io(std::string_view operand, BufferId id, IoRole role,
                   DType dtype, const Shape& shape) {
  const BufferDecl& buffer = draft_.buffers[id];
  if (buffer.io != role) {
    Refuse(RejectionCode::kOperandRole, operand, id,
           "an operand is another input or output than this step's",
           std::string(buffer.io ? Name(*buffer.io) : Name(buffer.kind)),
           std::string(Name(role)));
    return;
  }
  Type(operand, id, dtype, shape);
}

void TypeRules::SlotAndPosition(BufferId slot, BufferId position) {
  Io("slot", slot, IoRole::kSlot, DType::kI32, {rows_});
  Io("position", position, IoRole::kPosition, DType::kI32, {rows_});
}

void TypeRules::PageTable(BufferId id) {
  Io("page_table", id, IoRole::kPageTable, DType::kI32,
     {plan_.options().batch, plan_.pool().pages_per_slot});
}

void TypeRules::State(std::string_view operand, BufferId id,
                      const std::optional<plan::StateBuffer>& state) {
  const BufferDecl& buffer = draft_.buffers[id];
  if (buffer.kind != BufferKind::kState || !state ||
      buffer.arena != state->arena ||
      buffer.offset_bytes != state->offset_bytes) {
    Refuse(RejectionCode::kOperandRole, operand, id,
           "an operand is not this state of its layer",
           fmt::format("{} at {} of {}", Name(buffer.kind), buffer.offset_bytes,
                       Name(buffer.arena)),
           state ? fmt::format("state at {} of {}", state->offset_bytes,
                               Name(state->arena))
                 : "no such state");
    return;
  }
  Type(operand, id, state->dtype, state->shape);
}

const plan::LayerState* TypeRules::StateOf(int32_t layer) const {
  const auto& layers = plan_.state(draft_.rank).layers;
  if (layer < 0 || static_cast<size_t>(layer) >= layers.size()) return nullptr;
  return &layers[static_cast<size_t>(layer)];
}

template <typename T>
void TypeRules::Attribute(std::string_view name, T got, T want) {
  if (got == want) return;
  const auto spell = [](T value) {
    if constexpr (std::is_enum_v<T>) {
      return std::string(Name(value));
    } else {
      return fmt::format("{}", value);
    }
  };
  findings_.Add(RejectionCode::kStepAttribute,
                fmt::format("{}, {}", Locate(draft_, index_), name),
                "an attribute is not the model's", spell(got), spell(want));
}

template void TypeRules::Attribute(std::string_view, int64_t, int64_t);
template void TypeRules::Attribute(std::string_view, float, float);
template void TypeRules::Attribute(std::string_view, double, double);
template void TypeRules::Attribute(std::string_view, DeltaForm, DeltaForm);
template void TypeRules::Attribute(std::string_view, LogitRows, LogitRows);

void TypeRules::Refuse(RejectionCode code, std::string_view operand,
                       BufferId id, std::string message, std::string got,
                       std::string want) {
  findings_.Add(code, Locate(draft_, index_, operand, id), std::move(message),
                std::move(got), std::move(want));
}

void CheckTypes(const ProgramDraft& draft, const plan::ModelPlan& plan,
                Findings& findings) {
  TypeRules(draft, plan, findings).Run();
}

}  // namespace signet::step::rules
