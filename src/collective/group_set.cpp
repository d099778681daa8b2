#include "collective/group_set.h"

#include <algorithm>
#include <utility>

namespace signet::collective {

using topology::Axis;

GroupSet::GroupSet(const topology::Mesh& mesh,
                   std::chrono::milliseconds deadline)
    : ends_(static_cast<size_t>(mesh.num_ranks())) {
  const auto ends = [&](Rank rank) -> RankCommunicators& {
    return ends_[static_cast<size_t>(rank.value())];
  };
  for (int r = 0; r < mesh.num_ranks(); ++r) {
    for (const Axis axis : topology::kAllAxes) {
      // Each group is made by its first rank.
      if (mesh.size(axis) == 1 || mesh.Coordinate(axis, Rank(r)) != 0) continue;
      const std::vector<Rank> ranks = mesh.Group(axis, Rank(r));
      InProcessGroup& group = Add(ranks, deadline);
      for (size_t m = 0; m < ranks.size(); ++m) {
        ends(ranks[m]).axes[static_cast<size_t>(axis)] =
            &group.end(static_cast<int>(m));
      }
      if (axis != Axis::kPp) continue;
      for (size_t stage = 0; stage + 1 < ranks.size(); ++stage) {
        InProcessGroup& pair = Add({ranks[stage], ranks[stage + 1]}, deadline);
        ends(ranks[stage]).next_stage = &pair.end(0);
        ends(ranks[stage + 1]).previous_stage = &pair.end(1);
      }
    }
  }
}

InProcessGroup& GroupSet::Add(std::vector<Rank> ranks,
                              std::chrono::milliseconds deadline) {
  auto meeting = std::make_unique<InProcessGroup>(
      static_cast<int>(ranks.size()), deadline);
  groups_.push_back({std::move(ranks), std::move(meeting)});
  return *groups_.back().meeting;
}

void GroupSet::PoisonAll() {
  for (const Group& group : groups_) group.meeting->Poison();
}

bool GroupSet::poisoned() const {
  return std::any_of(groups_.begin(), groups_.end(), [](const Group& group) {
    return group.meeting->poisoned();
  });
}

std::optional<Rank> GroupSet::AwaitedBy(Rank rank) const {
  for (const Group& group : groups_) {
    const auto found = std::find(group.ranks.begin(), group.ranks.end(), rank);
    if (found == group.ranks.end()) continue;
    const int awaited =
        group.meeting->AwaitedBy(static_cast<int>(found - group.ranks.begin()));
    if (awaited >= 0) return group.ranks[static_cast<size_t>(awaited)];
  }
  return std::nullopt;
}

std::optional<Rank> GroupSet::missing_rank() const {
  for (const Group& group : groups_) {
    const int member = group.meeting->missing_member();
    if (member < 0) continue;
    Rank missing = group.ranks[static_cast<size_t>(member)];
    // A chain is no longer than the ranks are many.
    for (size_t link = 0; link < ends_.size(); ++link) {
      const std::optional<Rank> next = AwaitedBy(missing);
      if (!next) break;
      missing = *next;
    }
    return missing;
  }
  return std::nullopt;
}

void GroupSet::Reset() {
  for (const Group& group : groups_) group.meeting->Reset();
}

}  // namespace signet::collective
