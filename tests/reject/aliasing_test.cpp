// S5 against its definition: in every program, every two buffers that some step
// names are laid over each other by one byte at the end and at the beginning,
// and over exactly one range; the rule and a pair by pair check agree.

#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <optional>
#include <utility>
#include <vector>

#include "step/operands.h"
#include "step/rules/rules.h"
#include "tests/reject/one_edit.h"

namespace signet::testing {
namespace {

using step::BufferDecl;
using step::BufferKind;
using step::ProgramDraft;

constexpr Sample kSamples[] = {Sample::kIndexed, Sample::kGrouped,
                               Sample::kDense, Sample::kBlock,
                               Sample::kPrecomputedBlock};

// For each buffer the steps that name it, and what the definition says of two.
class Definition {
 public:
  explicit Definition(const ProgramDraft& draft)
      : draft_(draft), uses_(draft.buffers.size()) {
    for (size_t i = 0; i < draft.steps.size(); ++i) {
      step::ForEachOperand(draft.steps[i],
                           [&](std::string_view, BufferId id, step::Access) {
                             uses_[id].push_back(i);
                           });
    }
  }

  bool IsOperand(BufferId id) const { return !uses_[id].empty(); }

  // Whether `id` overlaps any other live buffer in a way that is not declared.
  bool Clashes(BufferId id) const {
    for (size_t i = 0; i < draft_.buffers.size(); ++i) {
      const BufferId other(static_cast<int32_t>(i));
      if (other != id && Share(id, other) && BothLive(id, other) &&
          !IsDeclared(id, other) && !IsDeclared(other, id)) {
        return true;
      }
    }
    return false;
  }

 private:
  const BufferDecl& Decl(BufferId id) const { return draft_.buffers[id]; }

  bool Share(BufferId a, BufferId b) const {
    const BufferDecl& x = Decl(a);
    const BufferDecl& y = Decl(b);
    return x.arena == y.arena && x.rank == y.rank &&
           x.arena != MemoryClass::kMapped &&
           x.offset_bytes < y.offset_bytes + y.size.value() &&
           y.offset_bytes < x.offset_bytes + x.size.value();
  }

  // At some time, the end of the program being one more.
  bool BothLive(BufferId a, BufferId b) const {
    for (size_t time = 0; time <= draft_.steps.size(); ++time) {
      if (LivesAt(a, time) && LivesAt(b, time)) return true;
    }
    return false;
  }
  bool LivesAt(BufferId id, size_t time) const {
    if (Decl(id).kind != BufferKind::kWork) return true;
    if (uses_[id].empty() || time < uses_[id].front()) return false;
    return Decl(id).io.has_value() || time <= uses_[id].back();
  }

  // The step that reads `source` last writes `target` first, in place.
  bool IsDeclared(BufferId source, BufferId target) const {
    const BufferDecl& x = Decl(source);
    const BufferDecl& y = Decl(target);
    if (x.offset_bytes != y.offset_bytes || x.size != y.size ||
        x.kind != BufferKind::kWork || y.kind != BufferKind::kWork ||
        x.io.has_value() || uses_[source].empty() || uses_[target].empty() ||
        uses_[source].back() != uses_[target].front() ||
        uses_[source].front() == uses_[source].back()) {
      return false;
    }
    const auto pair = InPlace(draft_.steps[uses_[target].front()]);
    return pair && pair->source == source && pair->target == target;
  }

  const ProgramDraft& draft_;
  IdVector<BufferId, std::vector<size_t>> uses_;
};

bool RuleRefuses(const ProgramDraft& draft, const plan::ModelPlan& plan) {
  step::rules::Findings findings;
  step::rules::CheckAliasing(draft, &plan.manifest(), findings);
  return !findings.empty();
}

TEST(Aliasing, S5_EveryPairOfOperandsOverlappedByOneByteAgrees) {
  int pairs = 0;
  int refused = 0;
  for (const Sample sample : kSamples) {
    SCOPED_TRACE(Name(sample));
    const plan::ModelPlan& plan = PlanOf(sample);
    ProgramDraft draft = DraftOf(sample);
    ASSERT_FALSE(RuleRefuses(draft, plan));
    const Definition definition(draft);
    for (size_t i = 0; i < draft.buffers.size(); ++i) {
      for (size_t j = 0; j < draft.buffers.size(); ++j) {
        const BufferId a(static_cast<int32_t>(i));
        const BufferId b(static_cast<int32_t>(j));
        if (i == j || draft.buffers[a].arena != draft.buffers[b].arena ||
            draft.buffers[a].arena == MemoryClass::kMapped ||
            !definition.IsOperand(a) || !definition.IsOperand(b)) {
          continue;
        }
        // b over the last byte of a, and over all of it.
        const uint64_t home = draft.buffers[b].offset_bytes;
        for (const uint64_t to :
             {draft.buffers[a].offset_bytes + draft.buffers[a].size.value() - 1,
              draft.buffers[a].offset_bytes}) {
          draft.buffers[b].offset_bytes = to;
          const bool want = definition.Clashes(b);
          ASSERT_EQ(RuleRefuses(draft, plan), want)
              << draft.buffers[b].name << " over " << draft.buffers[a].name;
          ++pairs;
          refused += want ? 1 : 0;
        }
        draft.buffers[b].offset_bytes = home;
      }
    }
  }
  std::cout << pairs << " overlaps, " << refused << " refused\n";
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, pairs);
}

}  // namespace
}  // namespace signet::testing
