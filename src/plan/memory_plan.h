#pragma once
// Bytes per rank and class for load, steady state and peak (contract P4), and
// their admission against what the devices have. Pure.

#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/memory_class.h"
#include "base/result.h"
#include "plan/model_plan.h"

namespace signet::plan {

using ClassBytes = std::map<MemoryClass, Bytes>;

/// What a GPU's driver takes beside our arenas: the context, the modules, the
/// graphs of all shapes and the scratch of kernels. Measured, rounded up.
inline constexpr Bytes kDriverAllowance{uint64_t{1} << 30};

struct RankMemory {
  ClassBytes load;    // while weights are read
  ClassBytes steady;  // with one session on the model
  Bytes LoadTotal() const;
  Bytes SteadyTotal() const;
  Bytes Peak() const;
};

struct MemoryPlan {
  std::vector<RankMemory> ranks;
};

/// `arenas`: for each rank the arena sizes of its programs, the largest over
/// the shapes (they share one workspace).
MemoryPlan PlanMemory(const ModelPlan& plan,
                      const std::vector<ClassBytes>& arenas);

/// Memory that some ranks share, and what of it can still be had: a GPU, or
/// the host for all its CPU ranks.
struct MemoryRoom {
  std::string name;  // "cpu:0", "cpu:0 ... cpu:3"
  std::vector<Rank> ranks;
  Bytes available;
};

/// kMemoryShort with the shortfall for every room that is too small for its
/// ranks at the peak, summed. A file mapped by several of them counts once.
Result<void> AdmitMemory(const MemoryPlan& memory,
                         const std::vector<MemoryRoom>& rooms);

}  // namespace signet::plan
