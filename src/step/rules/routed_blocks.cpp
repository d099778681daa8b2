#include "step/rules/routed_blocks.h"

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "step/rules/location.h"

namespace signet::step::rules {
namespace {

// A MoE step by its place in the grammar.
enum class Word {
  kOther,  // no MoE step
  kRoute,
  kIndexedGateUp,
  kIndexedDown,
  kScatter,
  kGroupedGateUp,
  kUnscatter,
  kGroupedDown,
  kActivation,
  kCombine,
};

std::string_view Name(Word word) {
  switch (word) {
    case Word::kOther:
      return "other";
    case Word::kRoute:
      return "moe_route";
    case Word::kIndexedGateUp:
      return "indexed_moe_gemv gate_up";
    case Word::kIndexedDown:
      return "indexed_moe_gemv down";
    case Word::kScatter:
      return "moe_scatter";
    case Word::kGroupedGateUp:
      return "grouped_moe_gemm gate_up";
    case Word::kUnscatter:
      return "moe_gate_up_unscatter";
    case Word::kGroupedDown:
      return "grouped_moe_gemm down";
    case Word::kActivation:
      return "moe_activation";
    case Word::kCombine:
      return "moe_combine";
  }
  return "";
}

constexpr std::array<Word, 5> kIndexed = {Word::kRoute, Word::kIndexedGateUp,
                                          Word::kActivation, Word::kIndexedDown,
                                          Word::kCombine};
constexpr std::array<Word, 7> kGrouped = {
    Word::kRoute,     Word::kScatter,    Word::kGroupedGateUp,
    Word::kUnscatter, Word::kActivation, Word::kGroupedDown,
    Word::kCombine};

Word WordOf(const Step& step) {
  if (std::holds_alternative<MoeRoute>(step)) return Word::kRoute;
  if (const auto* s = std::get_if<IndexedMoeGemv>(&step)) {
    return s->which == ExpertPart::kGateUp ? Word::kIndexedGateUp
                                           : Word::kIndexedDown;
  }
  if (std::holds_alternative<MoeScatter>(step)) return Word::kScatter;
  if (const auto* s = std::get_if<GroupedMoeGemm>(&step)) {
    return s->which == ExpertPart::kGateUp ? Word::kGroupedGateUp
                                           : Word::kGroupedDown;
  }
  if (std::holds_alternative<MoeGateUpUnscatter>(step)) return Word::kUnscatter;
  if (std::holds_alternative<MoeActivation>(step)) return Word::kActivation;
  if (std::holds_alternative<MoeCombine>(step)) return Word::kCombine;
  return Word::kOther;
}

// Reads the MoE steps of a program as sentences of the two grammars. After a
// fault it waits for the next route, so that one fault is one finding.
class BlockReader {
 public:
  BlockReader(const ProgramDraft& draft, Findings* findings)
      : draft_(draft), findings_(findings) {}

  std::vector<RoutedBlock> Read() {
    for (size_t i = 0; i < draft_.steps.size(); ++i) {
      const Word word = WordOf(draft_.steps[i]);
      if (word != Word::kOther) Take(word, i);
    }
    if (!indices_.empty() && !waiting_) {
      Fault(indices_.back(), "the program ends within a routed block",
            "end of program", std::string(Name(sentence_[indices_.size()])));
    }
    return std::move(blocks_);
  }

 private:
  void Take(Word word, size_t index) {
    if (word == Word::kRoute) {
      if (!indices_.empty() && !waiting_) Unexpected(word, index);
      waiting_ = false;
      indices_ = {index};
      // The word after the route tells the grammar.
      sentence_ = kIndexed;
      return;
    }
    if (waiting_) return;
    if (indices_.size() == 1 && word == Word::kScatter) sentence_ = kGrouped;
    if (indices_.empty() || word != sentence_[indices_.size()]) {
      Unexpected(word, index);
      waiting_ = true;
      return;
    }
    indices_.push_back(index);
    if (indices_.size() == sentence_.size()) Complete();
  }

  void Complete() {
    RoutedBlock block{.layer = LayerId(-1)};
    block.route = indices_.front();
    block.combine = indices_.back();
    if (sentence_.size() == kIndexed.size()) {
      block.gate_up = indices_[1];
      block.activation = indices_[2];
      block.down = indices_[3];
      const auto& gemv = std::get<IndexedMoeGemv>(draft_.steps[block.gate_up]);
      block.layer = LayerOf(gemv.experts);
    } else {
      block.scatter = indices_[1];
      block.gate_up = indices_[2];
      block.unscatter = indices_[3];
      block.activation = indices_[4];
      block.down = indices_[5];
      const auto& gemm = std::get<GroupedMoeGemm>(draft_.steps[block.gate_up]);
      block.layer = LayerOf(gemm.experts);
    }
    blocks_.push_back(block);
    indices_.clear();
  }

  LayerId LayerOf(BufferId experts) const {
    const std::optional<WeightRef>& ref = draft_.buffers[experts].weight;
    return ref && ref->expert_layer ? *ref->expert_layer : LayerId(-1);
  }

  void Unexpected(Word word, size_t index) {
    const Word want =
        indices_.empty() ? Word::kRoute : sentence_[indices_.size()];
    Fault(index, "a routed block is neither of the two grammars",
          std::string(Name(word)), std::string(Name(want)));
  }
  void Fault(size_t index, std::string message, std::string got,
             std::string want) {
    if (findings_ == nullptr) return;
    findings_->Add(RejectionCode::kGrammarBroken, Locate(draft_, index),
                   std::move(message), std::move(got), std::move(want));
  }

  const ProgramDraft& draft_;
  Findings* findings_;
  std::vector<RoutedBlock> blocks_;
  std::vector<size_t> indices_;  // of the words of the open sentence
  std::span<const Word> sentence_ = kIndexed;
  bool waiting_ = false;
};

class LinkRules {
 public:
  LinkRules(const ProgramDraft& draft, const RoutedBlock& block,
            Findings& findings)
      : draft_(draft), block_(block), findings_(findings) {}

  void Run() {
    const auto& route = Get<MoeRoute>(block_.route);
    CheckRouter(route);
    if (block_.grouped()) {
      Grouped(route);
    } else {
      Indexed(route);
    }
    const auto& combine = Get<MoeCombine>(block_.combine);
    Link(block_.combine, "ids", combine.ids, route.ids);
    Link(block_.combine, "weights", combine.weights, route.weights);
  }

 private:
  template <typename S>
  const S& Get(size_t index) const {
    return std::get<S>(draft_.steps[index]);
  }

  void CheckRouter(const MoeRoute& route) {
    const bool softmax = route.router == RouterKind::kSoftmaxTopK;
    if (route.scores.has_value() == softmax &&
        route.in_ids.has_value() != softmax &&
        route.in_weights.has_value() != softmax) {
      return;
    }
    findings_.Add(RejectionCode::kRouteLinkBroken, Locate(draft_, block_.route),
                  "a router has the operands of another kind", "",
                  softmax ? "scores" : "in_ids and in_weights");
  }

  void Indexed(const MoeRoute& route) {
    const auto& gate_up = Get<IndexedMoeGemv>(block_.gate_up);
    const auto& activation = Get<MoeActivation>(block_.activation);
    const auto& down = Get<IndexedMoeGemv>(block_.down);
    const auto& combine = Get<MoeCombine>(block_.combine);
    Owner(block_.gate_up, gate_up.experts, ExpertPart::kGateUp);
    Owner(block_.down, down.experts, ExpertPart::kDown);
    Link(block_.gate_up, "ids", gate_up.ids, route.ids);
    Present(block_.gate_up, "up", gate_up.up.has_value(), true);
    Link(block_.activation, "gate", activation.gate, gate_up.out);
    if (gate_up.up) {
      Link(block_.activation, "up", activation.up, *gate_up.up);
    }
    Link(block_.down, "ids", down.ids, route.ids);
    Link(block_.down, "x", down.x, activation.out);
    Present(block_.down, "up", down.up.has_value(), false);
    Link(block_.combine, "experts", combine.experts, down.experts);
    Link(block_.combine, "d", combine.d, down.out);
    Present(block_.combine, "inverse_perm", combine.inverse_perm.has_value(),
            false);
  }

  void Grouped(const MoeRoute& route) {
    const auto& scatter = Get<MoeScatter>(*block_.scatter);
    const auto& gate_up = Get<GroupedMoeGemm>(block_.gate_up);
    const auto& unscatter = Get<MoeGateUpUnscatter>(*block_.unscatter);
    const auto& activation = Get<MoeActivation>(block_.activation);
    const auto& down = Get<GroupedMoeGemm>(block_.down);
    const auto& combine = Get<MoeCombine>(block_.combine);
    Owner(block_.gate_up, gate_up.experts, ExpertPart::kGateUp);
    Owner(block_.down, down.experts, ExpertPart::kDown);
    Link(*block_.scatter, "ids", scatter.ids, route.ids);
    Link(*block_.scatter, "experts", scatter.experts, gate_up.experts);
    for (const auto& [index, gemm] :
         {std::pair(block_.gate_up, &gate_up), std::pair(block_.down, &down)}) {
      Link(index, "sorted_slot", gemm->sorted_slot, scatter.sorted_slot);
      Link(index, "tile_expert", gemm->tile_expert, scatter.tile_expert);
    }
    Link(*block_.unscatter, "sorted_slot", unscatter.sorted_slot,
         scatter.sorted_slot);
    Link(*block_.unscatter, "y", unscatter.y, gate_up.y);
    Link(block_.activation, "gate", activation.gate, unscatter.gate);
    Link(block_.activation, "up", activation.up, unscatter.up);
    Link(block_.down, "x", down.x, activation.out);
    Link(block_.combine, "experts", combine.experts, down.experts);
    Link(block_.combine, "d", combine.d, down.y);
    Present(block_.combine, "inverse_perm", combine.inverse_perm.has_value(),
            true);
    if (combine.inverse_perm) {
      Link(block_.combine, "inverse_perm", *combine.inverse_perm,
           scatter.inverse_perm);
    }
  }

  void Link(size_t index, std::string_view operand, BufferId got,
            BufferId want) {
    if (got == want) return;
    findings_.Add(RejectionCode::kRouteLinkBroken,
                  Locate(draft_, index, operand, got),
                  "an operand is not the one of the block's route",
                  draft_.buffers[got].name, draft_.buffers[want].name);
  }
  void Present(size_t index, std::string_view operand, bool got, bool want) {
    if (got == want) return;
    findings_.Add(RejectionCode::kRouteLinkBroken, Locate(draft_, index),
                  "an operand belongs to the other grammar or product",
                  std::string(operand) + (got ? " given" : " left out"),
                  want ? "given" : "left out");
  }
  // The operand is the projection of the block's layer.
  void Owner(size_t index, BufferId experts, ExpertPart part) {
    const BufferDecl& buffer = draft_.buffers[experts];
    const WeightRef want{.expert_layer = block_.layer, .part = part};
    if (buffer.kind == BufferKind::kExperts && buffer.weight == want) return;
    findings_.Add(RejectionCode::kRouteLinkBroken,
                  Locate(draft_, index, "experts", experts),
                  "the experts are not this projection of the block's layer",
                  buffer.name,
                  std::string(Name(part)) + " of layer " +
                      std::to_string(block_.layer.value()));
  }

  const ProgramDraft& draft_;
  const RoutedBlock& block_;
  Findings& findings_;
};

}  // namespace

std::vector<RoutedBlock> FindRoutedBlocks(const ProgramDraft& draft,
                                          Findings* findings) {
  return BlockReader(draft, findings).Read();
}

void CheckLinks(const ProgramDraft& draft, const RoutedBlock& block,
                Findings& findings) {
  LinkRules(draft, block, findings).Run();
}

}  // namespace signet::step::rules
