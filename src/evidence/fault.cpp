#include "evidence/fault.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "plan/layouter.h"
#include "step/operands.h"

namespace signet::evidence {
namespace {

constexpr std::array<std::string_view, kAllFaults.size()> kNames = {
    "wrong-token",   "flip-basis",       "swap-experts",
    "drop-reduce",   "double-residual",  "stale-epoch",
    "permute-ranks", "duplicate-device", "other-k"};

// Index of the first step of a kind at or after `from`; the end if none.
template <typename S>
size_t FindStep(const step::ProgramDraft& draft, size_t from = 0) {
  while (from < draft.steps.size() &&
         !std::holds_alternative<S>(draft.steps[from])) {
    ++from;
  }
  return from;
}

bool FlipBasis(step::ProgramDraft& draft) {
  const auto flip = [&](BufferId id) {
    tensor::Basis& basis = draft.buffers[id].basis;
    basis = basis == tensor::Basis::kNatural ? tensor::Basis::kHadamard128
                                             : tensor::Basis::kNatural;
    return true;
  };
  size_t at = FindStep<step::MoeActivation>(draft);
  if (at < draft.steps.size()) {
    return flip(std::get<step::MoeActivation>(draft.steps[at]).out);
  }
  at = FindStep<step::Activation>(draft);
  if (at == draft.steps.size()) return false;
  return flip(std::get<step::Activation>(draft.steps[at]).out);
}

// A walk over the fields of a step that changes none; those below hide what
// they change.
struct Nothing {
  void Read(std::string_view, BufferId&) const {}
  void Write(std::string_view, BufferId&) const {}
  void Update(std::string_view, BufferId&) const {}
  void ReadOptional(std::string_view, std::optional<BufferId>&) const {}
  void WriteOptional(std::string_view, std::optional<BufferId>&) const {}
  template <typename T>
  void Attribute(std::string_view, const T&) const {}
};

struct Redirect : Nothing {
  BufferId from;
  BufferId to;
  Redirect(BufferId f, BufferId t) : from(f), to(t) {}
  void Read(std::string_view, BufferId& id) const {
    if (id == from) id = to;
  }
  void ReadOptional(std::string_view name, std::optional<BufferId>& id) const {
    if (id) Read(name, *id);
  }
};

// Whoever read the sum reads this rank's addends.
bool DropReduce(step::ProgramDraft& draft) {
  const size_t at = FindStep<step::AllReduce>(draft);
  if (at == draft.steps.size()) return false;
  const auto reduce = std::get<step::AllReduce>(draft.steps[at]);
  draft.steps.erase(draft.steps.begin() + static_cast<std::ptrdiff_t>(at));
  const Redirect redirect(reduce.out, reduce.x);
  for (step::Step& step : draft.steps) {
    std::visit([&](auto& s) { s.Fields(s, redirect); }, step);
  }
  return true;
}

// Each rank adds the residual to its addends: it would be counted once a rank.
bool DoubleResidual(step::ProgramDraft& draft) {
  size_t at = FindStep<step::ResidualAdd>(draft);
  if (at == draft.steps.size()) return false;
  const BufferId residual = std::get<step::ResidualAdd>(draft.steps[at]).out;
  at = FindStep<step::AllReduce>(draft, at);
  if (at == draft.steps.size()) return false;
  auto& reduce = std::get<step::AllReduce>(draft.steps[at]);
  step::BufferDecl sum = draft.buffers[reduce.x];
  sum.name = "doubled";
  Bytes& arena = draft.arena_bytes[sum.arena];
  const Bytes offset = arena.AlignUp(plan::kBufferAlignment);
  sum.offset_bytes = offset.value();
  arena = offset + sum.size;
  const BufferId out = draft.buffers.Push(std::move(sum));
  const step::ResidualAdd add = {
      .residual = residual, .addend = reduce.x, .out = out};
  reduce.x = out;
  draft.steps.insert(draft.steps.begin() + static_cast<std::ptrdiff_t>(at),
                     add);
  return true;
}

// Not of band transfers: theirs is a direction, not an order.
bool PermuteRanks(step::ProgramDraft& draft) {
  bool found = false;
  const auto permute = [&found](auto& collective) {
    std::vector<Rank>& ranks = collective.group.ranks;
    if (ranks.size() < 2) return;
    std::reverse(ranks.begin(), ranks.end());
    found = true;
  };
  for (step::Step& step : draft.steps) {
    if (auto* reduce = std::get_if<step::AllReduce>(&step)) permute(*reduce);
    if (auto* gather = std::get_if<step::Gather>(&step)) permute(*gather);
    if (auto* cast = std::get_if<step::Broadcast>(&step)) permute(*cast);
  }
  return found;
}

}  // namespace

std::string_view Name(Fault fault) {
  return kNames[static_cast<size_t>(fault)];
}

std::optional<Fault> ParseFault(std::string_view name) {
  for (const Fault fault : kAllFaults) {
    if (Name(fault) == name) return fault;
  }
  return std::nullopt;
}

bool EditDraft(Fault fault, step::ProgramDraft& draft) {
  switch (fault) {
    case Fault::kFlipBasis:
      return FlipBasis(draft);
    case Fault::kDropReduce:
      return DropReduce(draft);
    case Fault::kDoubleResidual:
      return DoubleResidual(draft);
    case Fault::kPermuteRanks:
      return PermuteRanks(draft);
    case Fault::kStaleEpoch:
      // The draft is another mesh's already; it must name one.
      return FindStep<step::AllReduce>(draft) < draft.steps.size();
    case Fault::kWrongToken:
    case Fault::kSwapExperts:
    case Fault::kDuplicateDevice:
    case Fault::kOtherK:
      return true;
  }
  return false;
}

std::vector<int32_t> WrongToken(std::vector<int32_t> prompt, int64_t vocab) {
  int32_t& id = prompt[prompt.size() / 2];
  id = static_cast<int32_t>((id + 1) % vocab);
  return prompt;
}

tl::unexpected<Error> NoPlaceFor(Fault fault, const topology::MeshSpec& mesh) {
  return Reject(
      RejectionCode::kPlanOptionInvalid, "--inject",
      "mesh " + mesh.ToString() + " has nothing this fault could act on",
      std::string(Name(fault)));
}

}  // namespace signet::evidence
