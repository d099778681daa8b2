#include "store/rank_loader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "plan/layouter.h"
#include "tensor/dtype.h"

namespace signet::store {
namespace {

// Rows [first, first + size) of a matrix of `row_bytes` a row, of each row
// `count_bytes` from `first_byte`; returns the end of the copy.
std::byte* CopyRows(const std::byte* from, uint64_t row_bytes, plan::Block rows,
                    uint64_t first_byte, uint64_t count_bytes, std::byte* to) {
  from += static_cast<uint64_t>(rows.first) * row_bytes;
  if (count_bytes == row_bytes) {
    return std::copy_n(from, static_cast<uint64_t>(rows.size) * row_bytes, to);
  }
  for (int64_t i = 0; i < rows.size; ++i) {
    to = std::copy_n(from + first_byte, count_bytes, to);
    from += row_bytes;
  }
  return to;
}

class RankLoader {
 public:
  RankLoader(const plan::ModelPlan& plan,
             const IdVector<FileId, backend::FileMapping>& mappings, Rank rank)
      : plan_(plan), mappings_(mappings), rank_(rank) {}

  Result<WeightVersion::RankWeights> Run(backend::Device& device) && {
    SIGNET_ASSIGN_OR_RETURN(loaded_.experts,
                            Reserve(device, MemoryClass::kExperts,
                                    plan_.experts().OwnExpertBytes(rank_)));
    SIGNET_ASSIGN_OR_RETURN(loaded_.dense,
                            Reserve(device, MemoryClass::kDense,
                                    plan_.weights().dense_bytes(rank_)));
    PlaceWeights();
    for (const model::ExpertGroup& group : plan_.manifest().expert_groups()) {
      const plan::ExpertView* view = plan_.experts().View(group.layer, rank_);
      if (view != nullptr) PlaceExperts(group, *view);
    }
    return std::move(loaded_);
  }

 private:
  static Result<backend::Memory> Reserve(backend::Device& device,
                                         MemoryClass memory_class,
                                         Bytes bytes) {
    if (bytes == Bytes()) return backend::Memory();
    return device.Allocate(memory_class, bytes, plan::kBufferAlignment);
  }

  const std::byte* Address(const model::FileRange& range) const {
    return mappings_[range.file].data() + range.begin_bytes;
  }

  void PlaceWeights() {
    const auto& entries = plan_.manifest().weights();
    for (size_t i = 0; i < entries.size(); ++i) {
      const WeightId id(static_cast<int32_t>(i));
      loaded_.weights.Push(Place(id));
    }
  }

  const std::byte* Place(WeightId id) {
    const auto& entries = plan_.manifest().weights();
    const model::WeightEntry& entry = entries[id];
    const plan::WeightShard& shard = plan_.weights().shard(id, rank_);
    if (!shard.held) return nullptr;
    const std::byte* from = Address(
        entry.alias_of ? entries[*entry.alias_of].source : entry.source);
    if (!shard.cut) return from;
    const uint64_t element = tensor::SizeOf(entry.dtype);
    const bool matrix = entry.shape.num_dims() == 2;
    const auto width = [&](const tensor::Shape& shape) {
      return matrix ? static_cast<uint64_t>(shape[1]) * element : element;
    };
    std::byte* const placed = loaded_.dense.data() + shard.offset_bytes;
    std::byte* to = placed;
    for (const plan::Block& rows : shard.row_blocks) {
      to = CopyRows(from, width(entry.shape), rows,
                    static_cast<uint64_t>(shard.first_column) * element,
                    width(shard.shape), to);
    }
    return placed;
  }

  void PlaceExperts(const model::ExpertGroup& group,
                    const plan::ExpertView& view) {
    const plan::ExpertView::Facts& facts = view.facts();
    std::byte* gate_up = loaded_.experts.data() + facts.gate_up_offset_bytes;
    std::byte* down = loaded_.experts.data() + facts.down_offset_bytes;
    const plan::Block slice{facts.first_column, facts.local_width};
    // Gate and up are sliced by rows, down by columns; a whole width is both.
    const auto rows_of = [&](const model::ExpertProjection& projection,
                             ExpertId expert) {
      return Copy(projection, expert, slice, {0, facts.hidden}, gate_up);
    };
    WeightVersion::ExpertTable table = {
        .layer = group.layer,
        .experts = std::vector<backend::ExpertPointers>(
            static_cast<size_t>(facts.num_local)),
        .global_to_local =
            std::vector<int32_t>(static_cast<size_t>(facts.num_experts), -1)};
    for (int64_t e = 0; e < facts.num_experts; ++e) {
      const ExpertId expert(static_cast<int32_t>(e));
      const std::optional<LocalExpert> local = view.Local(expert);
      if (!local) continue;
      table.global_to_local[static_cast<size_t>(e)] = local->value();
      backend::ExpertPointers& pointers =
          table.experts[static_cast<size_t>(local->value())];
      pointers.gate = rows_of(group.gate, expert);
      pointers.up = rows_of(group.up, expert);
      pointers.down = Copy(group.down, expert, {0, facts.hidden}, slice, down);
    }
    loaded_.tables.push_back(std::move(table));
  }

  // A block of a projection to `to`, which it moves on; or the projection's
  // place in the mapping when the rank has no memory of its own.
  const void* Copy(const model::ExpertProjection& projection, ExpertId expert,
                   plan::Block rows, plan::Block columns, std::byte*& to) {
    const std::byte* from = Address(projection.sources[expert]);
    if (loaded_.experts.size() == Bytes()) return from;
    const uint64_t element = tensor::SizeOf(projection.dtype);
    std::byte* const placed = to;
    to = CopyRows(from, static_cast<uint64_t>(projection.shape[1]) * element,
                  rows, static_cast<uint64_t>(columns.first) * element,
                  static_cast<uint64_t>(columns.size) * element, to);
    return placed;
  }

  const plan::ModelPlan& plan_;
  const IdVector<FileId, backend::FileMapping>& mappings_;
  const Rank rank_;
  WeightVersion::RankWeights loaded_;
};

}  // namespace

Result<WeightVersion::RankWeights> LoadRank(
    const plan::ModelPlan& plan,
    const IdVector<FileId, backend::FileMapping>& mappings, Rank rank,
    backend::Device& device) {
  return RankLoader(plan, mappings, rank).Run(device);
}

}  // namespace signet::store
