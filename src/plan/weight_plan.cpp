#include "plan/weight_plan.h"

#include "plan/layouter.h"

namespace signet::plan {
namespace {

using model::Role;
using model::ShardPolicy;

bool Holds(const model::WeightEntry& entry, const RankDims& dims) {
  if (entry.layer) return dims.has_layer(*entry.layer);
  return entry.role == Role::kEmbedding ? dims.first_stage : dims.last_stage;
}

// Part `part` of equal `parts` of the rows [first, first + size).
Block EqualPart(int64_t first, int64_t size, const RankDims& dims) {
  const int64_t rows = size / dims.parts;
  return {first + dims.part * rows, rows};
}

std::vector<Block> RowBlocks(const model::WeightEntry& entry,
                             const model::ModelConfig& config,
                             const RankDims& dims) {
  const int64_t rows = entry.shape[0];
  switch (entry.shard) {
    case ShardPolicy::kReplicate:
    case ShardPolicy::kColumns:
      return {{0, rows}};
    case ShardPolicy::kRows:
    case ShardPolicy::kHeadRows:
      return {EqualPart(0, rows, dims)};
    case ShardPolicy::kQkvRowBlocks: {
      const int64_t keys = config.linear_key_heads * config.linear_key_dim;
      return {EqualPart(0, keys, dims), EqualPart(keys, keys, dims),
              EqualPart(2 * keys, rows - 2 * keys, dims)};
    }
    case ShardPolicy::kVocabularyRows:
      return {{dims.first_vocab, dims.vocab}};
  }
  return {};
}

WeightShard ShardOf(const model::WeightEntry& entry,
                    const model::ModelConfig& config, const RankDims& dims,
                    bool on_gpu) {
  WeightShard shard = {.held = Holds(entry, dims), .shape = entry.shape};
  shard.cut =
      shard.held && dims.parts > 1 && entry.shard != ShardPolicy::kReplicate;
  shard.own = shard.cut || (shard.held && on_gpu);
  if (!shard.cut) {
    if (shard.own) shard.row_blocks = {{0, entry.shape[0]}};
    return shard;
  }
  shard.row_blocks = RowBlocks(entry, config, dims);
  int64_t rows = 0;
  for (const Block& block : shard.row_blocks) rows += block.size;
  if (entry.shape.num_dims() == 1) {
    shard.shape = {rows};
    return shard;
  }
  int64_t columns = entry.shape[1];
  if (entry.shard == ShardPolicy::kColumns) {
    columns /= dims.parts;
    shard.first_column = dims.part * columns;
  }
  shard.shape = {rows, columns};
  return shard;
}

// The shard that already holds all of what `shard` is another name for; null
// when there is none.
const WeightShard* WholeOwner(const model::WeightEntry& entry,
                              const WeightShard& shard,
                              const IdVector<WeightId, WeightShard>& shards) {
  if (!entry.alias_of || !shard.own || shard.cut) return nullptr;
  if (!shards.Contains(*entry.alias_of)) return nullptr;
  const WeightShard& owner = shards[*entry.alias_of];
  return owner.own && !owner.cut ? &owner : nullptr;
}

}  // namespace

WeightPlan::WeightPlan(const model::Manifest& manifest,
                       const topology::Mesh& mesh,
                       const std::vector<RankDims>& dims) {
  for (int r = 0; r < mesh.num_ranks(); ++r) {
    IdVector<WeightId, WeightShard>& shards = shards_.emplace_back();
    Bytes bytes;
    for (const model::WeightEntry& entry : manifest.weights()) {
      WeightShard shard =
          ShardOf(entry, manifest.config(), dims[static_cast<size_t>(r)],
                  mesh.device(Rank(r)).is_gpu());
      if (const WeightShard* owner = WholeOwner(entry, shard, shards)) {
        shard.offset_bytes = owner->offset_bytes;
      } else if (shard.own) {
        const Bytes begin = bytes.AlignUp(kBufferAlignment);
        shard.offset_bytes = begin.value();
        bytes = begin + shard.shape.StorageBytes(entry.dtype);
      }
      shards.Push(std::move(shard));
    }
    bytes_.push_back(bytes);
  }
}

}  // namespace signet::plan
