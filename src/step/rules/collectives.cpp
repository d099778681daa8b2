#include "step/rules/collectives.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "step/rules/location.h"

namespace signet::step::rules {
namespace {

using plan::CollectiveKind;

struct Collective {
  CollectiveKind kind;
  const GroupRef* group;
  ScheduleRow row;
};

template <typename S>
std::optional<Collective> AsCollective(const S& s, CollectiveKind kind) {
  return Collective{kind, &s.group, s.row};
}

std::optional<Collective> AsCollective(const Step& step) {
  if (const auto* s = std::get_if<AllReduce>(&step)) {
    return AsCollective(*s, CollectiveKind::kAllReduce);
  }
  if (const auto* s = std::get_if<Gather>(&step)) {
    return AsCollective(*s, CollectiveKind::kGather);
  }
  if (const auto* s = std::get_if<Broadcast>(&step)) {
    return AsCollective(*s, CollectiveKind::kBroadcast);
  }
  if (const auto* s = std::get_if<BandTransfer>(&step)) {
    return AsCollective(*s, CollectiveKind::kBandTransfer);
  }
  return std::nullopt;
}

class CollectiveRules {
 public:
  CollectiveRules(const ProgramDraft& draft, const plan::ModelPlan& plan,
                  const std::vector<RoutedBlock>& blocks, Findings& findings)
      : draft_(draft),
        schedule_(plan.schedule().rows()),
        plan_(plan),
        blocks_(blocks),
        findings_(findings),
        used_(schedule_.size()) {}

  void Run() {
    for (size_t i = 0; i < draft_.steps.size(); ++i) {
      if (const auto collective = AsCollective(draft_.steps[i])) {
        Take(*collective, i);
      }
    }
    for (size_t i = 0; i < schedule_.size(); ++i) {
      const ScheduleRow row(static_cast<int32_t>(i));
      if (used_[row] || !Wanted(row)) continue;
      findings_.Add(RejectionCode::kCollectiveMissing, Spell(row),
                    "no step of the program is this collective");
    }
    for (const RoutedBlock& block : blocks_) CheckReduction(block);
  }

 private:
  std::string Spell(ScheduleRow row) const {
    const plan::CollectiveRow& entry = schedule_[row];
    return fmt::format("schedule row {}: {} over {} of {}", row.value(),
                       Name(entry.kind), Name(entry.axis), Name(entry.use));
  }

  // A model has the rows of its stage; a routed block alone has its own
  // reduction and no other.
  bool Wanted(ScheduleRow row) const {
    if (draft_.recipe.kind == Recipe::Kind::kModel) {
      return plan_.schedule().Concerns(row, plan_.dims(draft_.rank));
    }
    const plan::ExpertView* view =
        plan_.experts().View(*draft_.recipe.layer, draft_.rank);
    return row == (*view)->collective;
  }

  void Take(const Collective& collective, size_t index) {
    const ScheduleRow row = collective.row;
    if (!schedule_.Contains(row) || !Wanted(row)) {
      Unscheduled(index, "the schedule has no such row for this program",
                  std::to_string(row.value()));
      return;
    }
    const plan::CollectiveRow& entry = schedule_[row];
    if (entry.kind != collective.kind || entry.axis != collective.group->axis) {
      Unscheduled(index, "the collective is not the one of its row",
                  fmt::format("{} over {}", Name(collective.kind),
                              Name(collective.group->axis)),
                  Spell(row));
    }
    if (used_[row]) {
      Unscheduled(index, "a schedule row is used twice", Spell(row));
    } else if (last_ && row < *last_) {
      Unscheduled(index, "the collectives are not in the schedule's order",
                  std::to_string(row.value()),
                  fmt::format("after {}", last_->value()));
    }
    used_[row] = 1;
    last_ = row;
  }

  void Unscheduled(size_t index, std::string message, std::string got,
                   std::string want = {}) {
    findings_.Add(RejectionCode::kCollectiveUnscheduled, Locate(draft_, index),
                  std::move(message), std::move(got), std::move(want));
  }

  // The block's row reduces what its combine wrote, or a sum it was added to.
  void CheckReduction(const RoutedBlock& block) {
    const auto& combine = std::get<MoeCombine>(draft_.steps[block.combine]);
    const ScheduleRow row =
        (*plan_.experts().View(block.layer, draft_.rank))->collective;
    IdVector<BufferId, uint8_t> is_sum(draft_.buffers.size());
    is_sum[combine.out] = 1;
    for (size_t i = block.combine + 1; i < draft_.steps.size(); ++i) {
      const Step& step = draft_.steps[i];
      if (const auto* add = std::get_if<ResidualAdd>(&step)) {
        if (is_sum[add->residual] != 0 || is_sum[add->addend] != 0) {
          is_sum[add->out] = 1;
        }
      } else if (const auto* gated = std::get_if<GatedAdd>(&step)) {
        if (is_sum[gated->addend] != 0) is_sum[gated->out] = 1;
      } else if (const auto* reduce = std::get_if<AllReduce>(&step)) {
        if (reduce->row != row) continue;
        if (is_sum[reduce->x] != 0) return;
        findings_.Add(
            RejectionCode::kRouteLinkBroken, Locate(draft_, i, "x", reduce->x),
            "the block's reduction does not read its combine",
            draft_.buffers[reduce->x].name, draft_.buffers[combine.out].name);
        return;
      }
    }
    if (used_[row] == 0) return;  // missing, and said so
    findings_.Add(
        RejectionCode::kRouteLinkBroken, Locate(draft_, block.combine),
        "the block's reduction does not follow its combine", "", Spell(row));
  }

  const ProgramDraft& draft_;
  const IdVector<ScheduleRow, plan::CollectiveRow>& schedule_;
  const plan::ModelPlan& plan_;
  const std::vector<RoutedBlock>& blocks_;
  Findings& findings_;
  IdVector<ScheduleRow, uint8_t> used_;
  std::optional<ScheduleRow> last_;
};

}  // namespace

void CheckCollectives(const ProgramDraft& draft, const plan::ModelPlan& plan,
                      const std::vector<RoutedBlock>& blocks,
                      Findings& findings) {
  CollectiveRules(draft, plan, blocks, findings).Run();
}

}  // namespace signet::step::rules
