#pragma once
// Who owns which expert: the only resolver of an expert group (contract P1,
// P2). Deterministic; immutable; any thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "base/pass_key.h"
#include "base/result.h"
#include "model/manifest.h"
#include "plan/plan_options.h"
#include "plan/rank_dims.h"
#include "plan/schedule.h"
#include "topology/mesh.h"

namespace signet::plan {

/// How the routed experts are spread over the mesh (W4).
enum class Parallelism {
  kSingle,  // one rank holds every expert
  kOwned,   // each expert has one owner along the axis
  kSplit,   // every rank holds a slice of every expert's width
};
std::string_view Name(Parallelism parallelism);

/// The tuple of P1: where one expert lives.
struct ExpertPlacement {
  ExpertId expert;
  Rank owner;
  LocalExpert slot;
  friend bool operator==(const ExpertPlacement&,
                         const ExpertPlacement&) = default;
};

/// All that `lower` and the families see of an expert group (P7): ids,
/// rank-local shapes, formats, bases, partition. No address, path or store.
class ExpertView {
 public:
  struct Facts {
    LayerId layer;
    Rank rank;
    int64_t num_experts;  // E
    int64_t num_local;    // E_r
    int64_t top_k;        // K
    int64_t hidden;       // H
    int64_t width;        // I, global
    int64_t local_width;  // I_r
    tensor::DType gate_up_dtype;
    tensor::DType down_dtype;
    tensor::Basis gate_up_basis;  // of the input of gate and up
    tensor::Basis down_basis;     // of the input of down
    bool renormalise;             // router weights divided by their sum
    Parallelism parallelism;
    topology::Axis axis;     // of the partial its combine makes
    int64_t lanes;           // L of the canonical fold (N2)
    int64_t first_lane;      // of this rank
    int64_t num_lanes;       // of this rank
    ScheduleRow collective;  // the one row its combine reduces in
    // Columns of the width that a split expert's slice begins at.
    int64_t first_column;
    // Whether they lie in the rank's own experts memory, and where: [E_r, 2
    // I_r, H] and [E_r, H, I_r].
    bool own_memory;
    uint64_t gate_up_offset_bytes;
    uint64_t down_offset_bytes;
    // On a GPU: of the table of their addresses, then their ownership map.
    uint64_t table_offset_bytes;
  };

  ExpertView(PassKey<class ExpertPlan>, Facts facts,
             std::vector<ExpertPlacement> partition)
      : facts_(facts), partition_(std::move(partition)) {}

  const Facts* operator->() const { return &facts_; }
  const Facts& facts() const { return facts_; }
  /// The owner of every expert of the group, ascending by id; equal on all
  /// ranks of the axis. Empty when split: every rank holds a slice of each.
  const std::vector<ExpertPlacement>& partition() const { return partition_; }
  /// Where this rank holds an expert or its slice; unset for a foreign one.
  std::optional<LocalExpert> Local(ExpertId expert) const;

 private:
  Facts facts_;
  std::vector<ExpertPlacement> partition_;
};

/// The most rows the grouped order of S slots over `num_local` experts can
/// need, padded to tiles of `tile_rows` (P5): bm * floor((S + n (bm-1)) / bm),
/// n = min(num_local, S). Sticks on overflow.
Bytes GroupedRowsBound(int64_t slots, int64_t num_local, int64_t tile_rows);

/// The most slots a rank can get for `rows` rows (S_r of the contract).
int64_t MaxSlots(const ExpertView::Facts& facts, int64_t rows);

/// Lanes of the canonical fold: 8, or the largest power of two under it that
/// divides the number of experts (N2).
int64_t FoldLanes(int64_t num_experts);

class ExpertPlan {
 public:
  /// Refuses, with all reasons, experts, fold lanes or widths that the axis
  /// does not divide (P0, P3, N2). Shapes and formats are proven by the
  /// manifest. `dims`: one a rank.
  static Result<ExpertPlan> Make(const model::Manifest& manifest,
                                 const topology::Mesh& mesh,
                                 const std::vector<RankDims>& dims,
                                 const Schedule& schedule,
                                 TpExperts tp_experts);

  /// Null for a layer without routed experts, or of another stage.
  const ExpertView* View(LayerId layer, Rank rank) const;
  /// Bytes of the expert weights that `rank` holds, all layers of its stage.
  Bytes ExpertBytes(Rank rank) const;
  /// The rank's own memory for them, alignment between groups included; 0 when
  /// it reads them where the files are mapped.
  Bytes OwnExpertBytes(Rank rank) const;

 private:
  ExpertPlan() = default;
  std::vector<std::vector<ExpertView>> views_;  // [rank][group]
  std::vector<Bytes> bytes_;                    // [rank]
  std::vector<Bytes> memory_bytes_;  // [rank], of those in own memory
};

}  // namespace signet::plan
