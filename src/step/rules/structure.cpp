// S1: the header, the buffer declarations, the operands that exist, the routed
// blocks. Collectives are in collectives.cpp, the reading of the grammars and
// their links in routed_blocks.cpp.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_set>
#include <vector>

#include "step/operands.h"
#include "step/rules/collectives.h"
#include "step/rules/location.h"
#include "step/rules/routed_blocks.h"
#include "step/rules/rules.h"

namespace signet::step::rules {
namespace {

// Rows past this overflow nothing that is computed from them.
constexpr int64_t kMaxRows = int64_t{1} << 24;

class StructureRules {
 public:
  StructureRules(const ProgramDraft& draft, const plan::ModelPlan& plan,
                 Findings& findings)
      : draft_(draft), plan_(plan), findings_(findings) {}

  void Run() {
    CheckHeader();
    CheckBuffers();
    CheckOperands();
    // What follows looks operands up and asks the plan for the rank's views.
    if (!findings_.empty()) return;
    const std::vector<RoutedBlock> blocks =
        FindRoutedBlocks(draft_, &findings_);
    for (const RoutedBlock& block : blocks) {
      CheckRouter(block);
      CheckLinks(draft_, block, findings_);
    }
    if (findings_.empty()) CheckLayers(blocks);
    if (findings_.empty()) CheckCollectives(draft_, plan_, blocks, findings_);
  }

 private:
  bool is_model() const { return draft_.recipe.kind == Recipe::Kind::kModel; }

  void Header(std::string where, std::string message, std::string got = {},
              std::string want = {}) {
    findings_.Add(RejectionCode::kProgramHeaderMismatch, std::move(where),
                  std::move(message), std::move(got), std::move(want));
  }

  void CheckHeader() {
    if (draft_.steps.empty()) {
      findings_.Add(RejectionCode::kProgramEmpty, "program",
                    "the program has no steps");
    }
    if (draft_.contract != plan_.contract_id()) {
      Header("contract", "the program is of another plan",
             draft_.contract.Hex(), plan_.contract_id().Hex());
    }
    const int num_ranks = plan_.mesh().num_ranks();
    const bool rank_exists =
        draft_.rank.value() >= 0 && draft_.rank.value() < num_ranks;
    if (!rank_exists) {
      Header("rank", "the mesh has no such rank",
             std::to_string(draft_.rank.value()),
             fmt::format("less than {}", num_ranks));
    }
    if (draft_.shape.rows < 1 || draft_.shape.rows > kMaxRows) {
      Header("shape", "the rows are out of range",
             std::to_string(draft_.shape.rows),
             fmt::format("1 ... {}", kMaxRows));
    }
    if (is_model()) {
      CheckModelHeader();
    } else {
      CheckBlockHeader(rank_exists);
    }
  }

  void CheckModelHeader() {
    const auto& shapes = plan_.shapes();
    if (std::find(shapes.begin(), shapes.end(), draft_.shape) == shapes.end()) {
      Header("shape", "the plan has no such shape",
             fmt::format("{} of {} rows, logits {}", Name(draft_.shape.kind),
                         draft_.shape.rows, Name(draft_.shape.logits)));
    }
    if (draft_.recipe != Recipe{}) {
      Header("recipe", "a whole model has no layer and no router of its own");
    }
  }

  void CheckBlockHeader(bool rank_exists) {
    const std::optional<LayerId> layer = draft_.recipe.layer;
    const bool exists = layer && rank_exists &&
                        plan_.experts().View(*layer, draft_.rank) != nullptr;
    if (exists) return;
    Header("recipe", "the layer has no routed experts",
           layer ? std::to_string(layer->value()) : "none");
  }

  void CheckBuffers() {
    std::unordered_set<std::string_view> names;
    std::unordered_set<int> roles;
    for (size_t i = 0; i < draft_.buffers.size(); ++i) {
      const BufferId id(static_cast<int32_t>(i));
      const BufferDecl& buffer = draft_.buffers[id];
      if (!IsBufferName(buffer.name) || !names.insert(buffer.name).second) {
        findings_.Add(
            RejectionCode::kBufferUnknown, fmt::format("buffer {}", i),
            "a buffer needs a name of its own of [A-Za-z0-9_.]", buffer.name);
        continue;
      }
      CheckDeclaration(id, buffer);
      if (buffer.io && !roles.insert(static_cast<int>(*buffer.io)).second) {
        Role(id, "two buffers have one io role", Name(*buffer.io));
      }
    }
  }

  void Role(BufferId id, std::string message, std::string_view got,
            std::string want = {}) {
    findings_.Add(RejectionCode::kOperandRole, Locate(draft_, id),
                  std::move(message), std::string(got), std::move(want));
  }

  // Kind, arena, weight and io role of one buffer agree.
  void CheckDeclaration(BufferId id, const BufferDecl& buffer) {
    const bool is_weight = buffer.kind == BufferKind::kWeight ||
                           buffer.kind == BufferKind::kExperts;
    if (buffer.weight.has_value() != is_weight) {
      Role(id, "weights, and they alone, name what they hold",
           Name(buffer.kind));
    } else if (is_weight) {
      CheckWeightRef(id, buffer);
    }
    if (!ArenaFits(buffer)) {
      Role(id, "a buffer of this kind cannot lie in this arena",
           fmt::format("{} in {}", Name(buffer.kind), Name(buffer.arena)));
    }
    if (!IoFits(buffer)) {
      Role(id, "a buffer of this kind cannot have this io role",
           fmt::format("{} {}", Name(buffer.kind),
                       buffer.io ? Name(*buffer.io) : "without a role"));
    }
  }

  void CheckWeightRef(BufferId id, const BufferDecl& buffer) {
    const WeightRef& ref = *buffer.weight;
    const bool found =
        buffer.kind == BufferKind::kWeight
            ? ref.weight && !ref.expert_layer &&
                  plan_.manifest().weights().Contains(*ref.weight)
            : ref.expert_layer && !ref.weight &&
                  plan_.manifest().FindExperts(*ref.expert_layer) != nullptr;
    if (!found) {
      Role(id, "the manifest has no such weight", Name(buffer.kind));
    }
  }

  static bool ArenaFits(const BufferDecl& buffer) {
    const MemoryClass arena = buffer.arena;
    switch (buffer.kind) {
      case BufferKind::kInput:
        return buffer.io == IoRole::kPageTable ? arena == MemoryClass::kTables
                                               : arena == MemoryClass::kIo;
      case BufferKind::kConstant:
        return arena == MemoryClass::kTables;
      case BufferKind::kFlag:
        return arena == MemoryClass::kIo;
      case BufferKind::kWeight:
        return arena == MemoryClass::kMapped || arena == MemoryClass::kDense;
      case BufferKind::kExperts:
        return arena == MemoryClass::kMapped || arena == MemoryClass::kExperts;
      case BufferKind::kState:
        return arena == MemoryClass::kKv || arena == MemoryClass::kRecurrent;
      case BufferKind::kWork:
        return buffer.io ? arena == MemoryClass::kIo
                         : arena == MemoryClass::kWorkspace ||
                               arena == MemoryClass::kCommunicator;
    }
    return false;
  }

  static BufferKind KindOf(IoRole role) {
    switch (role) {
      case IoRole::kIds:
      case IoRole::kLive:
      case IoRole::kSlot:
      case IoRole::kPosition:
      case IoRole::kPageTable:
      case IoRole::kSampling:
      case IoRole::kRouteIds:
      case IoRole::kRouteWeights:
      case IoRole::kBlockInput:
        return BufferKind::kInput;
      case IoRole::kSampled:
      case IoRole::kLogits:
      case IoRole::kBlockOutput:
        return BufferKind::kWork;
      case IoRole::kFlags:
        return BufferKind::kFlag;
      case IoRole::kInvFreq:
        return BufferKind::kConstant;
    }
    return BufferKind::kWork;
  }

  static bool IoFits(const BufferDecl& buffer) {
    if (buffer.io) return KindOf(*buffer.io) == buffer.kind;
    // The executor finds these by their role alone.
    return buffer.kind != BufferKind::kInput &&
           buffer.kind != BufferKind::kConstant &&
           buffer.kind != BufferKind::kFlag;
  }

  void CheckOperands() {
    if (!draft_.buffers.Contains(draft_.live)) {
      findings_.Add(RejectionCode::kBufferUnknown, "live",
                    "the buffer does not exist",
                    std::to_string(draft_.live.value()));
    }
    for (size_t i = 0; i < draft_.steps.size(); ++i) {
      ForEachOperand(
          draft_.steps[i], [&](std::string_view name, BufferId id, Access) {
            if (draft_.buffers.Contains(id)) return;
            findings_.Add(
                RejectionCode::kBufferUnknown, Locate(draft_, i, name, id),
                "the buffer does not exist", std::to_string(id.value()));
          });
    }
  }

  void CheckRouter(const RoutedBlock& block) {
    const auto& route = std::get<MoeRoute>(draft_.steps[block.route]);
    if (route.router == draft_.recipe.router) return;
    findings_.Add(RejectionCode::kGrammarBroken, Locate(draft_, block.route),
                  "the router is not the recipe's",
                  std::string(Name(route.router)),
                  std::string(Name(draft_.recipe.router)));
  }

  // One block a layer of the stage with experts, in the order of the layers.
  void CheckLayers(const std::vector<RoutedBlock>& blocks) {
    std::vector<LayerId> want;
    if (is_model()) {
      for (const model::ExpertGroup& group : plan_.manifest().expert_groups()) {
        if (plan_.experts().View(group.layer, draft_.rank) == nullptr) continue;
        want.push_back(group.layer);
      }
    } else {
      want.push_back(*draft_.recipe.layer);
    }
    for (size_t i = 0; i < std::max(blocks.size(), want.size()); ++i) {
      const bool got_one = i < blocks.size();
      const bool want_one = i < want.size();
      if (got_one && want_one && blocks[i].layer == want[i]) continue;
      const auto spell = [](bool present, LayerId layer) {
        return present ? fmt::format("layer {}", layer.value()) : "none";
      };
      findings_.Add(RejectionCode::kGrammarBroken,
                    got_one ? Locate(draft_, blocks[i].route) : "program",
                    "the routed blocks are not one a layer in order",
                    spell(got_one, got_one ? blocks[i].layer : LayerId(-1)),
                    spell(want_one, want_one ? want[i] : LayerId(-1)));
      return;  // the rest is shifted
    }
  }

  const ProgramDraft& draft_;
  const plan::ModelPlan& plan_;
  Findings& findings_;
};

}  // namespace

void CheckStructure(const ProgramDraft& draft, const plan::ModelPlan& plan,
                    Findings& findings) {
  StructureRules(draft, plan, findings).Run();
}

}  // namespace signet::step::rules
