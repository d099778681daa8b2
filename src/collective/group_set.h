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
#include "collective/rank_groups.h"
#include "topology/mesh.h"

namespace signet::collective {

class GroupSet final : public RankGroups {
 public:
  /// A rank that waits longer than `deadline` poisons its group.
  GroupSet(const topology::Mesh& mesh, std::chrono::milliseconds deadline);

  const RankCommunicators& of(Rank rank) const override {
    return ends_[static_cast<size_t>(rank.value())];
  }
  void PoisonAll() override;
  bool poisoned() const;
  /// Ranks may have waited for one that itself waited in another group: this
  /// is the last of that chain, the one that waited for none.
  std::optional<Rank> missing_rank() const override;
  void Reset() override;

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
