#pragma once
// The groups of a mesh as one process sees them: the ends of the ranks that
// run here, and what went wrong in any group. Fixed address; the ends point
// into it.

#include <optional>

#include "base/id.h"
#include "collective/rank_communicators.h"

namespace signet::collective {

class RankGroups {
 public:
  virtual ~RankGroups() = default;
  RankGroups(const RankGroups&) = delete;
  RankGroups& operator=(const RankGroups&) = delete;

  /// `rank` runs in this process.
  virtual const RankCommunicators& of(Rank rank) const = 0;
  /// No rank of this process waits any more, in any group. Any thread.
  virtual void PoisonAll() = 0;
  /// The rank a poisoned group missed at its deadline.
  virtual std::optional<Rank> missing_rank() const = 0;
  /// A sign of life to the ranks of other processes, between two launches;
  /// cheap, and nothing where there are none.
  virtual void Beat() {}
  /// Only while no rank is inside a call. Ranks of other processes are out of
  /// reach: their groups stay poisoned.
  virtual void Reset() = 0;

 protected:
  RankGroups() = default;
};

}  // namespace signet::collective
