#pragma once
// The programs of every shape of a plan, bound to one set of arenas, and the
// constants they read. Fixed address: the bound programs point into it.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "exec/arenas.h"
#include "exec/bound_program.h"
#include "plan/model_plan.h"
#include "step/program.h"
#include "store/weight_version.h"

namespace signet::exec {

class ProgramSet {
 public:
  /// The programs of one rank: reserves the arenas (the largest need over the
  /// shapes), binds every program and writes the constants. `device` must
  /// outlive the set, and so must the groups of `communicators` and `observer`
  /// (see Bind).
  static Result<std::unique_ptr<ProgramSet>> Make(
      std::span<const step::SealedProgram> programs,
      const plan::ModelPlan& plan,
      std::shared_ptr<const store::WeightVersion> weights,
      backend::Device* device, TapObserver* observer,
      const collective::RankCommunicators& communicators = {});
  ProgramSet(const ProgramSet&) = delete;
  ProgramSet& operator=(const ProgramSet&) = delete;

  /// The smallest decode bucket that holds `rows` sequences; `rows` is at most
  /// the plan's batch.
  const BoundProgram& Decode(int64_t rows) const;
  /// The prefill shape of the next chunk of a prompt with `rest` tokens left:
  /// the largest while it is filled, then the smallest that holds the rest
  /// (G5).
  const BoundProgram& Prefill(int64_t rest) const;
  std::span<BoundProgram> decode() { return decode_; }
  std::span<BoundProgram> prefill() { return prefill_; }
  /// [slots, pages_per_slot], where the host writes it; empty when no layer has
  /// a KV cache.
  std::span<int32_t> page_table() const;
  Arenas& arenas() { return arenas_; }

 private:
  explicit ProgramSet(Arenas arenas) : arenas_(std::move(arenas)) {}
  void WriteConstants(const plan::ModelPlan& plan);
  Arenas arenas_;
  std::vector<BoundProgram> decode_;   // ascending rows
  std::vector<BoundProgram> prefill_;  // ascending rows
  int64_t page_table_entries_ = 0;
};

}  // namespace signet::exec
