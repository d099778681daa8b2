#pragma once
// What each rank holds of each weight outside the expert groups: which it
// reads, and the rows or columns of those cut over tp (contract P3, P3b). A CPU
// rank reads a whole weight where its file is mapped; a cut one, and all those
// of a GPU, lie in the rank's own memory, compact. Immutable; any thread.

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "model/manifest.h"
#include "plan/rank_dims.h"
#include "tensor/shape.h"
#include "topology/mesh.h"

namespace signet::plan {

struct WeightShard {
  bool held = false;    // a program of the rank reads it
  bool cut = false;     // along tp
  bool own = false;     // in the rank's dense memory; the fields below place it
  tensor::Shape shape;  // rank-local
  // Of the stored weight, in order; columns [first_column, + shape[1]).
  std::vector<Block> row_blocks;
  int64_t first_column = 0;
  uint64_t offset_bytes = 0;  // in the rank's dense memory
};

class WeightPlan {
 public:
  WeightPlan(const model::Manifest& manifest, const topology::Mesh& mesh,
             const std::vector<RankDims>& dims);

  const WeightShard& shard(WeightId weight, Rank rank) const {
    return shards_[static_cast<size_t>(rank.value())][weight];
  }
  /// Of the weights in the rank's own memory, with their alignment.
  Bytes dense_bytes(Rank rank) const {
    return bytes_[static_cast<size_t>(rank.value())];
  }

 private:
  std::vector<IdVector<WeightId, WeightShard>> shards_;  // [rank]
  std::vector<Bytes> bytes_;                             // [rank]
};

}  // namespace signet::plan
