#include "store/weight_version.h"

namespace signet::store {

const WeightVersion::ExpertTable* WeightVersion::Experts(LayerId layer,
                                                         Rank rank) const {
  for (const ExpertTable& table :
       content_.ranks[static_cast<size_t>(rank.value())].tables) {
    if (table.layer == layer) return &table;
  }
  return nullptr;
}

Bytes WeightVersion::memory_bytes(Rank rank, MemoryClass memory_class) const {
  const RankWeights& held = content_.ranks[static_cast<size_t>(rank.value())];
  switch (memory_class) {
    case MemoryClass::kExperts:
      return held.experts.size();
    case MemoryClass::kDense:
      return held.dense.size();
    default:
      return Bytes();
  }
}

Bytes WeightVersion::mapped_bytes() const {
  Bytes total;
  for (const backend::FileMapping& mapping : content_.mappings) {
    total += mapping.size();
  }
  return total;
}

}  // namespace signet::store
