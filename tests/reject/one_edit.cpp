#include "tests/reject/one_edit.h"

#include <cstdlib>
#include <iostream>
#include <optional>
#include <type_traits>
#include <utility>

namespace signet::testing {

using step::BufferDecl;
using step::ProgramDraft;

namespace {

struct Collect {
  std::vector<OperandRef> found;
  void Read(std::string_view name, BufferId& id) {
    found.push_back({name, &id});
  }
  void Write(std::string_view name, BufferId& id) { Read(name, id); }
  void Update(std::string_view name, BufferId& id) { Read(name, id); }
  void ReadOptional(std::string_view name, std::optional<BufferId>& id) {
    if (id) Read(name, *id);
  }
  void WriteOptional(std::string_view name, std::optional<BufferId>& id) {
    if (id) Read(name, *id);
  }
  template <typename T>
  void Attribute(std::string_view, T&) {}
};

struct Change {
  int left;
  std::string_view changed;
  void Read(std::string_view, BufferId&) {}
  void Write(std::string_view, BufferId&) {}
  void Update(std::string_view, BufferId&) {}
  void ReadOptional(std::string_view, std::optional<BufferId>&) {}
  void WriteOptional(std::string_view, std::optional<BufferId>&) {}
  template <typename T>
  void Attribute(std::string_view name, T& value) {
    if (left-- != 0) return;
    changed = name;
    if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(1 - static_cast<int>(value));
    } else if constexpr (std::is_same_v<T, step::GroupRef>) {
      value.ranks.push_back(Rank(1));
    } else if constexpr (std::is_arithmetic_v<T>) {
      value += 1;
    } else {
      value = T(value.value() + 1);
    }
  }
};

}  // namespace

std::vector<OperandRef> OperandsOf(step::Step& step) {
  Collect collect;
  std::visit([&](auto& s) { s.Fields(s, collect); }, step);
  return std::move(collect.found);
}

std::string_view ChangeAttribute(step::Step& step, int n) {
  Change change{n, {}};
  std::visit([&](auto& s) { s.Fields(s, change); }, step);
  return change.changed;
}

Codes SealCodes(ProgramDraft draft, const plan::ModelPlan& plan) {
  const Result<step::SealedProgram> sealed = step::Seal(std::move(draft), plan);
  Codes codes;
  if (sealed) return codes;
  for (const Rejection& r : std::get<Rejections>(sealed.error()).list()) {
    codes.insert(r.code);
  }
  return codes;
}

BufferId IdOf(const ProgramDraft& draft, std::string_view name) {
  for (size_t i = 0; i < draft.buffers.size(); ++i) {
    const BufferId id(static_cast<int32_t>(i));
    if (draft.buffers[id].name == name) return id;
  }
  std::cerr << "no buffer " << name << '\n';
  std::abort();
}

BufferDecl& Buffer(ProgramDraft& draft, std::string_view name) {
  return draft.buffers[IdOf(draft, name)];
}

size_t IndexOf(const ProgramDraft& draft, std::string_view kind, int n) {
  for (size_t i = 0; i < draft.steps.size(); ++i) {
    if (KindName(draft.steps[i]) == kind && n-- == 0) return i;
  }
  std::cerr << "no step " << kind << '\n';
  std::abort();
}

void Erase(ProgramDraft& draft, size_t index) {
  draft.steps.erase(draft.steps.begin() + static_cast<std::ptrdiff_t>(index));
}

std::string Spell(const Codes& codes) {
  std::string text;
  for (const RejectionCode code : codes) {
    if (!text.empty()) text += ' ';
    text += Name(code);
  }
  return text;
}

}  // namespace signet::testing
