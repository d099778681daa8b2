#include "plan/schedule.h"

namespace signet::plan {

using topology::Axis;

std::string_view Name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kGather:
      return "gather";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kBandTransfer:
      return "band_transfer";
  }
  return "";
}

std::string_view Name(CollectiveUse use) {
  switch (use) {
    case CollectiveUse::kResidual:
      return "residual";
    case CollectiveUse::kMixer:
      return "mixer";
    case CollectiveUse::kRoutedExperts:
      return "routed experts";
    case CollectiveUse::kDenseMlp:
      return "dense mlp";
    case CollectiveUse::kLogits:
      return "logits";
    case CollectiveUse::kTokenAlongTp:
      return "token along tp";
    case CollectiveUse::kTokenAlongPp:
      return "token along pp";
  }
  return "";
}

Axis ExpertAxis(const topology::Mesh& mesh) {
  return mesh.size(Axis::kTp) > 1 ? Axis::kTp : Axis::kEp;
}

Schedule::Schedule(const model::ModelConfig& config,
                   const topology::Mesh& mesh) {
  const int64_t stages = mesh.size(Axis::kPp);
  const bool tp = mesh.size(Axis::kTp) > 1;
  const auto num_layers = static_cast<int64_t>(config.layers.size());
  for (int64_t stage = 0; stage < stages; ++stage) {
    const int64_t first = stage * num_layers / stages;
    const int64_t end = (stage + 1) * num_layers / stages;
    for (int64_t l = first; l < end; ++l) {
      const LayerId layer(static_cast<int32_t>(l));
      if (stage > 0 && l == first) {
        rows_.Push({CollectiveKind::kBandTransfer, Axis::kPp, layer,
                    CollectiveUse::kResidual});
      }
      if (tp) {
        rows_.Push({CollectiveKind::kAllReduce, Axis::kTp, layer,
                    CollectiveUse::kMixer});
      }
      if (config.layers[static_cast<size_t>(l)].mlp == model::MlpKind::kMoe) {
        rows_.Push({CollectiveKind::kAllReduce, ExpertAxis(mesh), layer,
                    CollectiveUse::kRoutedExperts});
      } else if (tp) {
        rows_.Push({CollectiveKind::kAllReduce, Axis::kTp, layer,
                    CollectiveUse::kDenseMlp});
      }
    }
  }
  const auto after = [&](CollectiveKind kind, Axis axis, CollectiveUse use) {
    rows_.Push({kind, axis, std::nullopt, use});
  };
  if (tp) {
    after(CollectiveKind::kGather, Axis::kTp, CollectiveUse::kLogits);
    after(CollectiveKind::kBroadcast, Axis::kTp, CollectiveUse::kTokenAlongTp);
  }
  if (stages > 1) {
    after(CollectiveKind::kBroadcast, Axis::kPp, CollectiveUse::kTokenAlongPp);
  }
}

std::optional<ScheduleRow> Schedule::Find(CollectiveUse use,
                                          std::optional<LayerId> layer) const {
  for (size_t i = 0; i < rows_.size(); ++i) {
    const ScheduleRow row(static_cast<int32_t>(i));
    if (rows_[row].use == use && rows_[row].layer == layer) return row;
  }
  return std::nullopt;
}

bool Schedule::Concerns(ScheduleRow row, const RankDims& dims) const {
  const CollectiveRow& entry = rows_[row];
  switch (entry.use) {
    case CollectiveUse::kResidual:
      // Of the stage it enters and the one it leaves.
      return entry.layer->value() == dims.end_layer ||
             (entry.layer->value() == dims.first_layer && !dims.first_stage);
    case CollectiveUse::kMixer:
    case CollectiveUse::kRoutedExperts:
    case CollectiveUse::kDenseMlp:
      return dims.has_layer(*entry.layer);
    case CollectiveUse::kLogits:
    case CollectiveUse::kTokenAlongTp:
      return dims.last_stage;
    case CollectiveUse::kTokenAlongPp:
      return true;
  }
  return false;
}

}  // namespace signet::plan
