#pragma once
// One published set of weights: the owner of the mappings, expert tables and
// ownership maps of one plan and generation (contract T2). Immutable; any
// thread. Freed in reverse order of its making when the last owner goes.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/device.h"
#include "backend/memory.h"
#include "backend/views.h"
#include "base/digest.h"
#include "base/id.h"
#include "base/memory_class.h"
#include "base/pass_key.h"
#include "model/manifest.h"

namespace signet::store {

class LoadTransaction;

class WeightVersion {
 public:
  /// The tables of one expert group on one rank.
  struct ExpertTable {
    LayerId layer;
    std::vector<backend::ExpertPointers> experts;  // [E_r]
    std::vector<int32_t> global_to_local;          // [E], -1: foreign
    backend::CommittedTable committed;             // where kernels read them
  };
  /// What one rank holds beside the mapped files: copies of the experts when
  /// several ranks share a group, and of the weights that the plan cuts.
  struct RankWeights {
    backend::Memory experts;  // empty when mapped
    backend::Memory dense;    // empty when no weight is cut
    std::vector<ExpertTable> tables;
    IdVector<WeightId, const std::byte*> weights;  // null: not held
  };

  struct Content {
    std::shared_ptr<const model::Manifest> manifest;
    Digest contract;
    uint64_t generation;
    std::optional<Digest> content;
    IdVector<FileId, backend::FileMapping> mappings;
    std::vector<RankWeights> ranks;
  };
  WeightVersion(PassKey<LoadTransaction>, Content content)
      : content_(std::move(content)) {}
  WeightVersion(const WeightVersion&) = delete;
  WeightVersion& operator=(const WeightVersion&) = delete;

  const Digest& contract() const { return content_.contract; }
  /// Distinct for every commit of the process; never reused (T3).
  uint64_t generation() const { return content_.generation; }
  /// ContentOf the model; unset where the load did not digest it.
  const std::optional<Digest>& content_digest() const {
    return content_.content;
  }
  const model::Manifest& manifest() const { return *content_.manifest; }
  /// First byte of what `rank` holds of a weight, as its plan places it; null
  /// when another stage does.
  const std::byte* Data(WeightId weight, Rank rank) const {
    return content_.ranks[static_cast<size_t>(rank.value())].weights[weight];
  }
  /// Null for a layer without experts.
  const ExpertTable* Experts(LayerId layer, Rank rank) const;
  /// What the allocator gave for the rank's experts or cut weights; 0 when
  /// they are mapped.
  Bytes memory_bytes(Rank rank, MemoryClass memory_class) const;
  Bytes mapped_bytes() const;

 private:
  Content content_;
};

}  // namespace signet::store
