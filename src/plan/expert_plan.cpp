#include "plan/expert_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "plan/layouter.h"

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

std::optional<LocalExpert> ExpertView::Local(ExpertId expert) const {
  if (facts_.parallelism == Parallelism::kSplit) {
    return LocalExpert(expert.value());
  }
  const ExpertPlacement& placement =
      partition_[static_cast<size_t>(expert.value())];
  if (placement.owner != facts_.rank) return std::nullopt;
  return placement.slot;
}

namespace {

// Why a group cannot be spread over `ranks` ranks of the axis; unset: it can.
// A lane is folded by one rank, so that the tree over the lanes is the same for
// every number of owners (N2).
std::optional<Rejection> WhyNot(const model::ExpertGroup& group,
                                Parallelism parallelism, topology::Axis axis,
                                int64_t ranks) {
  Rejection rejection = {.code = RejectionCode::kExpertsIndivisible,
                         .where = fmt::format("layer {}", group.layer.value()),
                         .got = fmt::format("{}={}", Name(axis), ranks),
                         .want = {},
                         .message = {}};
  const int64_t lanes = FoldLanes(group.num_experts);
  if (parallelism == Parallelism::kOwned &&
      (group.num_experts % ranks != 0 || lanes % ranks != 0)) {
    rejection.message = fmt::format(
        "{} experts in {} fold lanes cannot be owned evenly over {}",
        group.num_experts, lanes, Name(axis));
    rejection.want = fmt::format("a power of two up to {}", lanes);
    return rejection;
  }
  if (parallelism == Parallelism::kSplit && group.width % ranks != 0) {
    rejection.message =
        fmt::format("an expert width of {} cannot be split evenly over {}",
                    group.width, Name(axis));
    rejection.want = fmt::format("a divisor of {}", group.width);
    return rejection;
  }
  return std::nullopt;
}

// Three addresses an expert: gate, up, down.
constexpr uint64_t kExpertTableEntryBytes = 24;

std::vector<ExpertPlacement> Owners(int64_t num_experts, int64_t num_local,
                                    const std::vector<Rank>& ranks) {
  std::vector<ExpertPlacement> partition;
  for (int64_t e = 0; e < num_experts; ++e) {
    partition.push_back({ExpertId(static_cast<int32_t>(e)),
                         ranks[static_cast<size_t>(e / num_local)],
                         LocalExpert(static_cast<int32_t>(e % num_local))});
  }
  return partition;
}

}  // namespace

Result<ExpertPlan> ExpertPlan::Make(const model::Manifest& manifest,
                                    const topology::Mesh& mesh,
                                    const std::vector<RankDims>& dims,
                                    const Schedule& schedule,
                                    TpExperts tp_experts) {
  RejectionList rejections;
  ExpertPlan plan;
  const topology::Axis axis = ExpertAxis(mesh);
  const int64_t ranks = mesh.size(axis);
  const bool split =
      axis == topology::Axis::kTp && tp_experts == TpExperts::kSplit;
  const Parallelism parallelism = ranks == 1 ? Parallelism::kSingle
                                  : split    ? Parallelism::kSplit
                                             : Parallelism::kOwned;
  const int64_t owners = split ? 1 : ranks;
  plan.views_.resize(dims.size());
  plan.bytes_.resize(dims.size());
  plan.memory_bytes_.resize(dims.size());
  for (const model::ExpertGroup& group : manifest.expert_groups()) {
    if (auto why = WhyNot(group, parallelism, axis, ranks)) {
      rejections.Add(*std::move(why));
      continue;
    }
    const int64_t lanes = FoldLanes(group.num_experts);
    const int64_t num_local = group.num_experts / owners;
    const int64_t local_width = split ? group.width / ranks : group.width;
    for (size_t r = 0; r < dims.size(); ++r) {
      if (!dims[r].has_layer(group.layer)) continue;
      const Rank rank(static_cast<int32_t>(r));
      const int64_t coordinate = mesh.Coordinate(axis, rank);
      const Bytes gate_up =
          ProjectionBytes(group, 2, group.gate.dtype, num_local, local_width);
      const Bytes down =
          ProjectionBytes(group, 1, group.down.dtype, num_local, local_width);
      plan.bytes_[r] += gate_up + down;
      const bool own_memory =
          parallelism != Parallelism::kSingle || mesh.device(rank).is_gpu();
      Bytes& end = plan.memory_bytes_[r];
      const Bytes gate_up_offset = end.AlignUp(kBufferAlignment);
      const Bytes down_offset =
          (gate_up_offset + gate_up).AlignUp(kBufferAlignment);
      Bytes table_offset;
      if (own_memory) end = down_offset + down;
      if (mesh.device(rank).is_gpu()) {
        table_offset = end.AlignUp(kBufferAlignment);
        end = table_offset + Bytes(num_local) * kExpertTableEntryBytes +
              Bytes(group.num_experts) * sizeof(int32_t);
      }
      const ExpertView::Facts facts = {
          .layer = group.layer,
          .rank = rank,
          .num_experts = group.num_experts,
          .num_local = num_local,
          .top_k = group.top_k,
          .hidden = group.hidden,
          .width = group.width,
          .local_width = local_width,
          .gate_up_dtype = group.gate.dtype,
          .down_dtype = group.down.dtype,
          .gate_up_basis = group.gate.input_basis,
          .down_basis = group.down.input_basis,
          .renormalise = manifest.config().renormalise,
          .parallelism = parallelism,
          .axis = axis,
          .lanes = lanes,
          .first_lane = split ? 0 : coordinate * (lanes / owners),
          .num_lanes = lanes / owners,
          .collective =
              *schedule.Find(CollectiveUse::kRoutedExperts, group.layer),
          .first_column = split ? coordinate * local_width : 0,
          .own_memory = own_memory,
          .gate_up_offset_bytes = gate_up_offset.value(),
          .down_offset_bytes = down_offset.value(),
          .table_offset_bytes = table_offset.value(),
      };
      plan.views_[r].emplace_back(
          PassKey<ExpertPlan>(), facts,
          split ? std::vector<ExpertPlacement>()
                : Owners(group.num_experts, num_local, mesh.Group(axis, rank)));
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

Bytes ExpertPlan::OwnExpertBytes(Rank rank) const {
  return memory_bytes_[static_cast<size_t>(rank.value())];
}

}  // namespace signet::plan
