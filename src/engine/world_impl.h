#pragma once
// What a public World holds, and how its processes agree.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "collective/world.h"
#include "signet/world.h"

namespace signet {

/// What the processes compare: names and values, in one order on all.
using Facts = std::vector<std::pair<std::string, std::string>>;

struct World::Impl {
  std::unique_ptr<collective::World> world;
  bool lost = false;
  std::string run_id;  // drawn by rank 0
  int64_t num_meshes = 0;
  /// What stands for the next mesh's epoch between processes (M3): all make
  /// the same meshes in the same order.
  std::string NextEpoch();

  /// Meets all other processes at `phase`. An error of any of them, this one
  /// included, becomes the error of all, with its rank named. Otherwise every
  /// rank's facts, in rank order.
  Result<std::vector<Facts>> Meet(std::string_view phase,
                                  const Result<Facts>& own);
  /// Meet, and the facts of all must be those of rank 0: kRanksDisagree names
  /// every rank and fact that is not.
  Result<void> Agree(std::string_view phase, const Result<Facts>& own);
  /// Meet with nothing to compare: done only if all have done it.
  Result<void> Together(std::string_view phase, const Result<void>& own);
};

}  // namespace signet
