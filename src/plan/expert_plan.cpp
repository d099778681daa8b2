#include "plan/expert_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace signet::plan {
namespace {

// The refusals of P0 that only a hand-made or damaged group can show; the
// manifest's own checks come before.
void CheckGroup(const model::ExpertGroup& group,
                const model::Manifest& manifest, RejectionList& rejections) {
  const std::string where = fmt::format("layer {}", group.layer.value());
  const tensor::Shape up_shape = {group.width, group.hidden};
  const tensor::Shape down_shape = {group.hidden, group.width};
  if (group.gate.shape != up_shape || group.up.shape != up_shape ||
      group.down.shape != down_shape) {
    rejections.Add(RejectionCode::kTensorShapeMismatch, where,
                   "expert shapes do not fit the group",
                   ToString(group.down.shape), ToString(down_shape));
  }
  if (group.gate.dtype != group.up.dtype) {
    rejections.Add(RejectionCode::kExpertFormatsMixed, where,
                   "gate and up of the experts have two dtypes");
  }
  for (const model::ExpertProjection* projection :
       {&group.gate, &group.up, &group.down}) {
    if (static_cast<int64_t>(projection->sources.size()) !=
        group.num_experts) {
      rejections.Add(RejectionCode::kExpertSetInvalid, where,
                     "not one source an expert",
                     std::to_string(projection->sources.size()),
                     std::to_string(group.num_experts));
    }
  }
  const auto& schedule = manifest.schedule();
  if (!schedule.Contains(group.collective) ||
      schedule[group.collective].kind != model::CollectiveKind::kAllReduce ||
      schedule[group.collective].layer != group.layer) {
    rejections.Add(RejectionCode::kScheduleRowMissing, where,
                   "the expert group has no all-reduce in the schedule");
  }
}

Bytes GroupBytes(const model::ExpertGroup& group, int64_t num_local,
                 int64_t local_width) {
  const Bytes up_elements =
      tensor::Shape({local_width, group.hidden}).NumElements();
  const Bytes each =
      up_elements * (tensor::SizeOf(group.gate.dtype) +
                     tensor::SizeOf(group.up.dtype) +
                     tensor::SizeOf(group.down.dtype));
  return each * static_cast<uint64_t>(num_local);
}

}  // namespace

std::string_view Name(Parallelism parallelism) {
  switch (parallelism) {
    case Parallelism::kSingle:
      return "single";
    case Parallelism::kOwned:
      return "owned";
    case Parallelism::kSplit:
      return "split";
  }
  return "";
}

int64_t FoldLanes(int64_t num_experts) {
  int64_t lanes = 8;
  while (num_experts % lanes != 0) lanes /= 2;
  return lanes;
}

Bytes GroupedRowsBound(int64_t slots, int64_t num_local, int64_t tile_rows) {
  const uint64_t tile = static_cast<uint64_t>(tile_rows);
  const uint64_t runs = static_cast<uint64_t>(std::min(slots, num_local));
  const Bytes padded =
      Bytes(static_cast<uint64_t>(slots)) + Bytes(runs) * (tile - 1);
  if (padded.overflowed()) return padded;
  return Bytes(padded.value() / tile) * tile;
}

int64_t MaxSlots(const ExpertView::Facts& facts, int64_t rows) {
  const int64_t a_row = facts.parallelism == Parallelism::kOwned
                            ? std::min(facts.top_k, facts.num_local)
                            : facts.top_k;
  return rows * a_row;
}

Result<ExpertPlan> ExpertPlan::Make(const model::Manifest& manifest,
                                    const topology::Mesh& mesh) {
  RejectionList rejections;
  ExpertPlan plan;
  const int num_ranks = mesh.num_ranks();
  plan.views_.resize(static_cast<size_t>(num_ranks));
  plan.bytes_.resize(static_cast<size_t>(num_ranks));
  for (const model::ExpertGroup& group : manifest.expert_groups()) {
    CheckGroup(group, manifest, rejections);
    if (!rejections.empty()) continue;
    std::vector<ExpertPlacement> partition;
    for (int64_t e = 0; e < group.num_experts; ++e) {
      const auto index = static_cast<int32_t>(e);
      partition.push_back({ExpertId(index), Rank(0), LocalExpert(index)});
    }
    const int64_t lanes = FoldLanes(group.num_experts);
    for (int r = 0; r < num_ranks; ++r) {
      const ExpertView::Facts facts = {
          .layer = group.layer,
          .rank = Rank(r),
          .num_experts = group.num_experts,
          .num_local = group.num_experts,
          .top_k = group.top_k,
          .hidden = group.hidden,
          .width = group.width,
          .local_width = group.width,
          .gate_up_dtype = group.gate.dtype,
          .down_dtype = group.down.dtype,
          .gate_up_basis = group.gate.input_basis,
          .down_basis = group.down.input_basis,
          .renormalise = manifest.config().renormalise,
          .parallelism = Parallelism::kSingle,
          .axis = manifest.schedule()[group.collective].axis,
          .lanes = lanes,
          .first_lane = 0,
          .num_lanes = lanes,
          .collective = group.collective,
      };
      const auto rank = static_cast<size_t>(r);
      plan.views_[rank].emplace_back(PassKey<ExpertPlan>(), facts, partition);
      plan.bytes_[rank] +=
          GroupBytes(group, facts.num_local, facts.local_width);
    }
  }
  if (!rejections.empty()) return rejections.Take();
  return plan;
}

const ExpertView* ExpertPlan::View(LayerId layer, Rank rank) const {
  for (const ExpertView& view : views_[static_cast<size_t>(rank.value())]) {
    if (view->layer == layer) return &view;
  }
  return nullptr;
}

Bytes ExpertPlan::ExpertBytes(Rank rank) const {
  return bytes_[static_cast<size_t>(rank.value())];
}

}  // namespace signet::plan
