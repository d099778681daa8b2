#include "plan/expert_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace signet::plan {
namespace {

// Of gate and up together (2 matrices) or of down (1), on one rank.
Bytes ProjectionBytes(const model::ExpertGroup& group, uint64_t matrices,
                      tensor::DType dtype, int64_t num_local,
                      int64_t local_width) {
  return tensor::Shape({num_local, local_width, group.hidden})
             .StorageBytes(dtype) *
         matrices;
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
    const topology::Axis axis = manifest.schedule()[group.collective].axis;
    const int64_t owners = mesh.size(axis);
    const int64_t lanes = FoldLanes(group.num_experts);
    // A lane is folded by one rank, so that the tree over the lanes is the
    // same for every number of owners (N2).
    if (group.num_experts % owners != 0 || lanes % owners != 0) {
      rejections.Add(
          RejectionCode::kExpertsIndivisible,
          fmt::format("layer {}", group.layer.value()),
          fmt::format("{} experts in {} fold lanes cannot be owned evenly "
                      "over {}",
                      group.num_experts, lanes, Name(axis)),
          fmt::format("{}={}", Name(axis), owners),
          fmt::format("a power of two up to {}", lanes));
      continue;
    }
    const int64_t num_local = group.num_experts / owners;
    for (int r = 0; r < num_ranks; ++r) {
      const int64_t coordinate = mesh.Coordinate(axis, Rank(r));
      const std::vector<Rank> ranks = mesh.Group(axis, Rank(r));
      std::vector<ExpertPlacement> partition;
      for (int64_t e = 0; e < group.num_experts; ++e) {
        partition.push_back({ExpertId(static_cast<int32_t>(e)),
                             ranks[static_cast<size_t>(e / num_local)],
                             LocalExpert(static_cast<int32_t>(e % num_local))});
      }
      Bytes& bytes = plan.bytes_[static_cast<size_t>(r)];
      const Bytes gate_up_offset = bytes;
      const Bytes down_offset =
          gate_up_offset +
          ProjectionBytes(group, 2, group.gate.dtype, num_local, group.width);
      bytes = down_offset + ProjectionBytes(group, 1, group.down.dtype,
                                            num_local, group.width);
      const ExpertView::Facts facts = {
          .layer = group.layer,
          .rank = Rank(r),
          .num_experts = group.num_experts,
          .num_local = num_local,
          .top_k = group.top_k,
          .hidden = group.hidden,
          .width = group.width,
          .local_width = group.width,
          .gate_up_dtype = group.gate.dtype,
          .down_dtype = group.down.dtype,
          .gate_up_basis = group.gate.input_basis,
          .down_basis = group.down.input_basis,
          .renormalise = manifest.config().renormalise,
          .parallelism =
              owners == 1 ? Parallelism::kSingle : Parallelism::kOwned,
          .axis = axis,
          .lanes = lanes,
          .first_lane = coordinate * (lanes / owners),
          .num_lanes = lanes / owners,
          .collective = group.collective,
          .gate_up_offset_bytes = gate_up_offset.value(),
          .down_offset_bytes = down_offset.value(),
      };
      plan.views_[static_cast<size_t>(r)].emplace_back(
          PassKey<ExpertPlan>(), facts, std::move(partition));
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
