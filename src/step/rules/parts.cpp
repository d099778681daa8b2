#include "step/rules/parts.h"

#include <fmt/format.h>

#include <string>

#include "step/operands.h"
#include "step/rules/location.h"

namespace signet::step::rules {
namespace {

// Why `got` is not `want`.
RejectionCode CodeOf(Part got, Part want) {
  if (got.kind == PartKind::kPartial) return RejectionCode::kPartialUnreduced;
  if (want.kind == PartKind::kPartial && got.kind == PartKind::kWhole) {
    return RejectionCode::kWholeInReducedRange;
  }
  return RejectionCode::kShardMisread;
}

}  // namespace

PartRules::PartRules(const ProgramDraft& draft, const MeshContext& context,
                     Findings& findings)
    : draft_(draft),
      context_(context),
      findings_(findings),
      fates_(draft.buffers.size()),
      reduced_(draft.buffers.size()) {}

void PartRules::Run() {
  for (index_ = 0; index_ < draft_.steps.size(); ++index_) {
    std::visit(*this, draft_.steps[index_]);
  }
  CheckEnd();
}

bool PartRules::Take(Named operand, Part want) {
  const Part got = Of(operand.id);
  if (got == want) {
    if (got.kind == PartKind::kPartial) Consume(operand.id);
    return true;
  }
  if (got.kind == PartKind::kPartial) fates_[operand.id].misread = true;
  Refuse(CodeOf(got, want), operand, "a step cannot read what the ranks hold",
         got, want);
  return false;
}

bool PartRules::TakeSettled(Named operand) {
  const Part got = Of(operand.id);
  if (got.kind != PartKind::kPartial) return true;
  return TakeWhole(operand);
}

void PartRules::Make(Named result, Part made) {
  const Part declared = Of(result.id);
  if (declared == made) return;
  Refuse(CodeOf(made, declared), result,
         "a buffer declares another part than its step makes", declared, made);
  fates_[result.id].misnamed = true;
}

void PartRules::Sum(Named a, Named b, Named out) {
  if (fates_[a.id].misnamed || fates_[b.id].misnamed) return;
  const Part left = Of(a.id);
  const Part right = Of(b.id);
  for (const Named& operand : {a, b}) {
    if (Of(operand.id).kind != PartKind::kShard) continue;
    Refuse(RejectionCode::kShardMisread, operand,
           "a step cannot read what the ranks hold", Of(operand.id),
           Part::Whole());
    return;
  }
  if (left == right) {
    if (left.kind == PartKind::kPartial) {
      Consume(a.id);
      Consume(b.id);
    }
    Make(out, left);
    return;
  }
  for (const Named& operand : {a, b}) {
    if (Of(operand.id).kind == PartKind::kPartial) {
      fates_[operand.id].misread = true;
    }
  }
  fates_[out.id].misread = true;
  // One whole, one addend: which of the two is wrong, the result tells.
  if (Of(out.id).kind == PartKind::kPartial &&
      (left.kind == PartKind::kWhole || right.kind == PartKind::kWhole)) {
    const Named whole = left.kind == PartKind::kWhole ? a : b;
    Refuse(RejectionCode::kWholeInReducedRange, whole,
           "what is equal on all ranks would be summed once a rank",
           Part::Whole(), Of(out.id));
    return;
  }
  const Named partial = right.kind == PartKind::kPartial ? b : a;
  Refuse(RejectionCode::kPartialUnreduced, partial,
         "addends of a sum are used before their reduction", Of(partial.id),
         Part::Whole());
}

void PartRules::CheckEnd() {
  for (size_t i = 0; i < draft_.buffers.size(); ++i) {
    const BufferId id(static_cast<int32_t>(i));
    const BufferDecl& buffer = draft_.buffers[id];
    if (buffer.kind != BufferKind::kWork && buffer.part != Part::Whole() &&
        (buffer.io || buffer.part.kind == PartKind::kPartial)) {
      findings_.Add(CodeOf(buffer.part, Part::Whole()), Locate(draft_, id),
                    "the ranks cannot hold this buffer so",
                    ToString(buffer.part), "whole");
    }
    if (buffer.kind != BufferKind::kWork || fates_[id].misnamed) continue;
    if (buffer.io && buffer.part != Part::Whole()) {
      fates_[id].misread = true;
      findings_.Add(CodeOf(buffer.part, Part::Whole()), Locate(draft_, id),
                    "an output of the program is not whole",
                    ToString(buffer.part), "whole");
    }
    if (buffer.part.kind != PartKind::kPartial) continue;
    const Fate& fate = fates_[id];
    if (fate.consumed == 0 && !fate.misread) {
      findings_.Add(RejectionCode::kPartialUnreduced, Locate(draft_, id),
                    "addends of a sum are never reduced", "0", "1");
    } else if (fate.consumed > 1) {
      findings_.Add(RejectionCode::kPartialReducedTwice, Locate(draft_, id),
                    "addends enter more than one reduction or sum",
                    std::to_string(fate.consumed), "1");
    }
  }
}

void PartRules::Refuse(RejectionCode code, Named operand, std::string message,
                       Part got, Part want) {
  if (fates_[operand.id].misnamed) return;
  findings_.Add(code, Locate(draft_, index_, operand.operand, operand.id),
                std::move(message), ToString(got), ToString(want));
}

Part PartRules::ExpertShare() const {
  return context_.parallelism == plan::Parallelism::kSingle
             ? Part::Whole()
             : Part::Shard(context_.expert_axis);
}

// Owned: each rank sorts its own slots. Split: every rank has all of them.
Part PartRules::SlotShare() const {
  return context_.parallelism == plan::Parallelism::kOwned
             ? Part::Shard(context_.expert_axis)
             : Part::Whole();
}

// A split expert's rows are sums over the ranks' widths.
Part PartRules::DownShare() const {
  return context_.parallelism == plan::Parallelism::kSplit
             ? Part::Partial(context_.expert_axis)
             : ExpertShare();
}

}  // namespace signet::step::rules
