#pragma once
// A refusal test: a program that seals, one edit, the codes it must end in.

#include <functional>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "signet/rejection_code.h"
#include "step/program.h"
#include "tests/reject/sample_programs.h"

namespace signet::testing {

using Codes = std::set<RejectionCode>;

struct OneEdit {
  std::string_view name;  // contract id first: S3_PartialUnreduced
  Sample sample;
  std::function<void(step::ProgramDraft&)> apply;
  Codes codes;
};
inline void PrintTo(const OneEdit& edit, std::ostream* out) {
  *out << edit.name;
}

/// Every code that sealing `draft` ends in; empty when it seals.
Codes SealCodes(step::ProgramDraft draft, const plan::ModelPlan& plan);

/// The buffer of a name, which exists.
BufferId IdOf(const step::ProgramDraft& draft, std::string_view name);
step::BufferDecl& Buffer(step::ProgramDraft& draft, std::string_view name);

/// The index of the n-th step of a kind, which exists.
size_t IndexOf(const step::ProgramDraft& draft, std::string_view kind,
               int n = 0);
void Erase(step::ProgramDraft& draft, size_t index);

template <typename S>
S& Nth(step::ProgramDraft& draft, int n = 0) {
  return std::get<S>(draft.steps[IndexOf(draft, S::kName, n)]);
}

/// The operands of a step that are present, in field order; they can be
/// changed through the pointers while the step lives.
struct OperandRef {
  std::string_view name;
  BufferId* id;
};
std::vector<OperandRef> OperandsOf(step::Step& step);

/// Changes the n-th attribute of a step to another value; its name, empty when
/// the step has fewer.
std::string_view ChangeAttribute(step::Step& step, int n);

/// Prints the codes by name.
std::string Spell(const Codes& codes);

}  // namespace signet::testing
