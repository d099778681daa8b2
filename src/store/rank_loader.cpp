#include "store/rank_loader.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "plan/layouter.h"
#include "tensor/dtype.h"

namespace signet::store {
namespace {

using backend::Memory;

// A block of a stored matrix.
struct MatrixBlock {
  const std::byte* matrix;
  int fd;  // of the file that holds it
  uint64_t file_offset;
  uint64_t element_bytes;
  int64_t width;  // elements of a stored row
  plan::Block rows;
  plan::Block columns;

  backend::StridedRows Rows() const {
    const uint64_t stride = static_cast<uint64_t>(width) * element_bytes;
    const uint64_t begin = static_cast<uint64_t>(rows.first) * stride +
                           static_cast<uint64_t>(columns.first) * element_bytes;
    return {.data = matrix + begin,
            .rows = static_cast<uint64_t>(rows.size),
            .row_bytes = static_cast<uint64_t>(columns.size) * element_bytes,
            .stride_bytes = stride,
            .fd = fd,
            .file_offset = file_offset + begin};
  }
};

class RankLoader {
 public:
  RankLoader(backend::LoadKey key, const plan::ModelPlan& plan,
             const IdVector<FileId, backend::FileMapping>& mappings, Rank rank,
             backend::Device& device)
      : key_(key),
        plan_(plan),
        mappings_(mappings),
        rank_(rank),
        device_(device) {}

  Result<WeightVersion::RankWeights> Run(const Progress& progress) && {
    SIGNET_ASSIGN_OR_RETURN(
        loaded_.experts,
        Reserve(MemoryClass::kExperts, plan_.experts().OwnExpertBytes(rank_)));
    SIGNET_ASSIGN_OR_RETURN(
        loaded_.dense,
        Reserve(MemoryClass::kDense, plan_.weights().dense_bytes(rank_)));
    const auto& entries = plan_.manifest().weights();
    for (size_t i = 0; i < entries.size(); ++i) {
      SIGNET_ASSIGN_OR_RETURN(const std::byte* placed,
                              Place(WeightId(static_cast<int32_t>(i))));
      loaded_.weights.Push(placed);
    }
    for (const model::ExpertGroup& group : plan_.manifest().expert_groups()) {
      const plan::ExpertView* view = plan_.experts().View(group.layer, rank_);
      if (view == nullptr) continue;
      SIGNET_RETURN_IF_ERROR(PlaceExperts(group, *view));
    }
    const Bytes total = loaded_.experts.size() + loaded_.dense.size();
    SIGNET_RETURN_IF_ERROR(device_.Settle(key_, [&](Bytes done) {
      if (progress) progress(std::min(done, total), total);
    }));
    return std::move(loaded_);
  }

 private:
  Result<Memory> Reserve(MemoryClass memory_class, Bytes bytes) {
    if (bytes == Bytes()) return Memory();
    return device_.Allocate(memory_class, bytes, plan::kBufferAlignment);
  }

  const std::byte* Address(const model::FileRange& range) const {
    return mappings_[range.file].data() + range.begin_bytes;
  }

  int Descriptor(const model::FileRange& range) const {
    return plan_.manifest()
        .checkpoint()
        .weight_files()[range.file]
        .descriptor();
  }

  // To `offset` of the rank's memory, which it moves on.
  Result<void> Copy(const MatrixBlock& block, const Memory& to,
                    uint64_t& offset) {
    const backend::StridedRows rows = block.Rows();
    SIGNET_RETURN_IF_ERROR(device_.Copy(key_, to, offset, rows));
    offset += rows.rows * rows.row_bytes;
    return {};
  }

  // Whether a weight lies where the one it is another name for does.
  bool SharesMemory(const plan::WeightShard& shard, WeightId owner) const {
    const plan::WeightShard& other = plan_.weights().shard(owner, rank_);
    return loaded_.weights.Contains(owner) && other.own && !other.cut &&
           !shard.cut;
  }

  // Where the rank reads a weight; null when it does not.
  Result<const std::byte*> Place(WeightId id) {
    const auto& entries = plan_.manifest().weights();
    const model::WeightEntry& entry = entries[id];
    const plan::WeightShard& shard = plan_.weights().shard(id, rank_);
    if (!shard.held) return nullptr;
    const model::FileRange& source =
        entry.alias_of ? entries[*entry.alias_of].source : entry.source;
    const std::byte* stored = Address(source);
    if (!shard.own) return stored;
    if (entry.alias_of && SharesMemory(shard, *entry.alias_of)) {
      return loaded_.weights[*entry.alias_of];
    }
    const auto width = [](const tensor::Shape& shape) {
      return shape.num_dims() == 2 ? shape[1] : 1;
    };
    uint64_t offset = shard.offset_bytes;
    for (const plan::Block& rows : shard.row_blocks) {
      SIGNET_RETURN_IF_ERROR(
          Copy({.matrix = stored,
                .fd = Descriptor(source),
                .file_offset = source.begin_bytes,
                .element_bytes = tensor::SizeOf(entry.dtype),
                .width = width(entry.shape),
                .rows = rows,
                .columns = {shard.first_column, width(shard.shape)}},
               loaded_.dense, offset));
    }
    return loaded_.dense.data() + shard.offset_bytes;
  }

  // Gate and up are sliced by rows, down by columns; a whole width is both.
  Result<void> PlaceExperts(const model::ExpertGroup& group,
                            const plan::ExpertView& view) {
    const plan::ExpertView::Facts& facts = view.facts();
    uint64_t gate_up = facts.gate_up_offset_bytes;
    uint64_t down = facts.down_offset_bytes;
    const plan::Block slice{facts.first_column, facts.local_width};
    const plan::Block hidden{0, facts.hidden};
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
      SIGNET_ASSIGN_OR_RETURN(
          pointers.gate, Place(group.gate, expert, slice, hidden, gate_up));
      SIGNET_ASSIGN_OR_RETURN(pointers.up,
                              Place(group.up, expert, slice, hidden, gate_up));
      SIGNET_ASSIGN_OR_RETURN(pointers.down,
                              Place(group.down, expert, hidden, slice, down));
    }
    loaded_.tables.push_back(std::move(table));
    return {};
  }

  // Where the rank reads a block of a projection: a copy at `offset`, or the
  // place in the mapping when it has no memory of its own.
  Result<const void*> Place(const model::ExpertProjection& projection,
                            ExpertId expert, plan::Block rows,
                            plan::Block columns, uint64_t& offset) {
    const model::FileRange& source = projection.sources[expert];
    const std::byte* stored = Address(source);
    if (loaded_.experts.empty()) return stored;
    const std::byte* const placed = loaded_.experts.data() + offset;
    SIGNET_RETURN_IF_ERROR(
        Copy({.matrix = stored,
              .fd = Descriptor(source),
              .file_offset = source.begin_bytes,
              .element_bytes = tensor::SizeOf(projection.dtype),
              .width = projection.shape[1],
              .rows = rows,
              .columns = columns},
             loaded_.experts, offset));
    return placed;
  }

  const backend::LoadKey key_;
  const plan::ModelPlan& plan_;
  const IdVector<FileId, backend::FileMapping>& mappings_;
  const Rank rank_;
  backend::Device& device_;
  WeightVersion::RankWeights loaded_;
};

}  // namespace

Result<WeightVersion::RankWeights> LoadRank(
    backend::LoadKey key, const plan::ModelPlan& plan,
    const IdVector<FileId, backend::FileMapping>& mappings, Rank rank,
    backend::Device& device, const Progress& progress) {
  return RankLoader(key, plan, mappings, rank, device).Run(progress);
}

}  // namespace signet::store
