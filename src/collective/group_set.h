#pragma once
// The groups of a mesh whose ranks are threads of one process: one per axis
// longer than 1 and set of ranks that share the other coordinates, and one per
// pair of neighbouring pipeline stages. Fixed address; the ends point into it.

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "base/id.h"
#include "collective/in_process_group.h"
#include "collective/rank_communicators.h"
#include "topology/mesh.h"

namespace signet::collective {

class GroupSet {
 public:
  /// A rank that waits longer than `deadline` poisons its group.
  GroupSet(const topology::Mesh& mesh, std::chrono::milliseconds deadline);
  GroupSet(const GroupSet&) = delete;
  GroupSet& operator=(const GroupSet&) = delete;

  const RankCommunicators& of(Rank rank) const {
    return ends_[static_cast<size_t>(rank.value())];
  }
  /// No rank waits any more, in any group. Any thread.
  void PoisonAll();
  bool poisoned() const;
  /// The rank a poisoned group missed at its deadline. Ranks of other groups
  /// may have waited for one that itself waited: this is the last of that
  /// chain, the one that waited for none.
  std::optional<Rank> missing_rank() const;
  /// Only while no rank is inside a call.
  void Reset();

 private:
  struct Group {
    std::vector<Rank> ranks;  // in group order
    std::unique_ptr<InProcessGroup> meeting;
  };
  InProcessGroup& Add(std::vector<Rank> ranks,
                      std::chrono::milliseconds deadline);
  std::optional<Rank> AwaitedBy(Rank rank) const;
  std::vector<Group> groups_;
  std::vector<RankCommunicators> ends_;  // [ranks]
};

}  // namespace signet::collective
