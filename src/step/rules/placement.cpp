// S6: every buffer lies on the program's rank, and every collective states the
// mesh's own group.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "step/rules/location.h"
#include "step/rules/rules.h"

namespace signet::step::rules {
namespace {

std::string Spell(const std::vector<Rank>& ranks) {
  std::string text;
  for (const Rank rank : ranks) {
    if (!text.empty()) text += ',';
    text += std::to_string(rank.value());
  }
  return text;
}

class PlacementRules {
 public:
  PlacementRules(const ProgramDraft& draft, const topology::Mesh& mesh,
                 Findings& findings)
      : draft_(draft), mesh_(mesh), findings_(findings) {}

  void Run() {
    for (size_t i = 0; i < draft_.buffers.size(); ++i) {
      const BufferId id(static_cast<int32_t>(i));
      const Rank rank = draft_.buffers[id].rank;
      if (rank == draft_.rank) continue;
      findings_.Add(RejectionCode::kArenaOfOtherRank, Locate(draft_, id),
                    "a buffer lies on another rank than its program",
                    std::to_string(rank.value()),
                    std::to_string(draft_.rank.value()));
    }
    for (index_ = 0; index_ < draft_.steps.size(); ++index_) {
      const Step& step = draft_.steps[index_];
      if (const auto* reduce = std::get_if<AllReduce>(&step)) {
        CheckGroup(reduce->group);
        CheckElements(*reduce);
      } else if (const auto* gather = std::get_if<Gather>(&step)) {
        CheckGroup(gather->group);
      } else if (const auto* broadcast = std::get_if<Broadcast>(&step)) {
        CheckGroup(broadcast->group);
        CheckRoot(*broadcast);
      } else if (const auto* transfer = std::get_if<BandTransfer>(&step)) {
        CheckTransfer(transfer->group);
      }
    }
  }

 private:
  void CheckEpoch(const GroupRef& group) {
    if (group.epoch == mesh_.epoch()) return;
    findings_.Add(RejectionCode::kEpochStale, Locate(draft_, index_),
                  "the group is of another mesh", std::to_string(group.epoch),
                  std::to_string(mesh_.epoch()));
  }

  void CheckGroup(const GroupRef& group) {
    CheckEpoch(group);
    const std::vector<Rank> want = mesh_.Group(group.axis, draft_.rank);
    if (group.ranks == want) return;
    Mismatch("the group is not the mesh's along its axis", Spell(group.ranks),
             fmt::format("{} along {}", Spell(want), Name(group.axis)));
  }

  void CheckElements(const AllReduce& reduce) {
    const Bytes want = draft_.buffers[reduce.x].shape.NumElements();
    if (reduce.elements >= 0 &&
        Bytes(static_cast<uint64_t>(reduce.elements)) == want) {
      return;
    }
    Mismatch("the element count is not that of the operand",
             std::to_string(reduce.elements), std::to_string(want.value()));
  }

  void CheckRoot(const Broadcast& broadcast) {
    const std::vector<Rank> group =
        mesh_.Group(broadcast.group.axis, draft_.rank);
    if (std::find(group.begin(), group.end(), broadcast.root) != group.end()) {
      return;
    }
    Mismatch("the root is not in the group",
             std::to_string(broadcast.root.value()), Spell(group));
  }

  // From one pipeline stage to the next, this rank being one of the two.
  void CheckTransfer(const GroupRef& group) {
    CheckEpoch(group);
    const std::vector<Rank> line =
        mesh_.Group(topology::Axis::kPp, draft_.rank);
    for (size_t i = 0; i + 1 < line.size(); ++i) {
      const bool here = line[i] == draft_.rank || line[i + 1] == draft_.rank;
      if (here && group.axis == topology::Axis::kPp &&
          group.ranks == std::vector<Rank>{line[i], line[i + 1]}) {
        return;
      }
    }
    Mismatch("the group is not two neighbouring stages with this rank",
             Spell(group.ranks),
             fmt::format("two neighbours of {}", Spell(line)));
  }

  void Mismatch(std::string message, std::string got, std::string want) {
    findings_.Add(RejectionCode::kGroupMismatch, Locate(draft_, index_),
                  std::move(message), std::move(got), std::move(want));
  }

  const ProgramDraft& draft_;
  const topology::Mesh& mesh_;
  Findings& findings_;
  size_t index_ = 0;
};

}  // namespace

void CheckPlacement(const ProgramDraft& draft, const MeshContext& context,
                    Findings& findings) {
  PlacementRules(draft, *context.mesh, findings).Run();
}

}  // namespace signet::step::rules
