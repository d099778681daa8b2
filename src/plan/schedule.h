#pragma once
// The ordered list of collectives of a plan (contract W5): one row per
// collective that `lower` emits, addressed by its position. Immutable; any
// thread.

#include <optional>
#include <string>
#include <string_view>

#include "base/id.h"
#include "model/manifest.h"
#include "plan/rank_dims.h"
#include "topology/axis.h"
#include "topology/mesh.h"

namespace signet::plan {

enum class CollectiveKind { kAllReduce, kGather, kBroadcast, kBandTransfer };
std::string_view Name(CollectiveKind kind);

/// What a row completes.
enum class CollectiveUse {
  kResidual,       // band transfer into `layer`, the first of its stage
  kMixer,          // tp: o or out projection of `layer`
  kRoutedExperts,  // the routed experts of `layer`; under tp with the shared
                   // expert, whose addends join before the one reduction
  kDenseMlp,       // tp: down projection of `layer`
  kLogits,         // tp: vocabulary blocks
  kTokenAlongTp,   // drawn ids, from the rank that samples
  kTokenAlongPp,   // drawn ids, from the last stage
};
std::string_view Name(CollectiveUse use);

struct CollectiveRow {
  CollectiveKind kind;
  topology::Axis axis;
  std::optional<LayerId> layer;  // unset after the layers
  CollectiveUse use;
};

class Schedule {
 public:
  Schedule(const model::ModelConfig& config, const topology::Mesh& mesh);

  const IdVector<ScheduleRow, CollectiveRow>& rows() const { return rows_; }
  /// Unset when the mesh needs no such collective.
  std::optional<ScheduleRow> Find(CollectiveUse use,
                                  std::optional<LayerId> layer) const;
  /// Whether a rank's program of the whole model meets the row.
  bool Concerns(ScheduleRow row, const RankDims& dims) const;

 private:
  IdVector<ScheduleRow, CollectiveRow> rows_;
};

/// The axis whose ranks share the routed experts: tp where there is one.
topology::Axis ExpertAxis(const topology::Mesh& mesh);

}  // namespace signet::plan
