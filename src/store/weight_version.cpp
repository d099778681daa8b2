#include "store/weight_version.h"

namespace signet::store {

const std::byte* WeightVersion::Data(WeightId weight) const {
  const auto& weights = content_.manifest->weights();
  const model::WeightEntry* entry = &weights[weight];
  if (entry->alias_of) entry = &weights[*entry->alias_of];
  return content_.mappings[entry->source.file].data() +
         entry->source.begin_bytes;
}

const WeightVersion::ExpertTable* WeightVersion::Experts(LayerId layer,
                                                         Rank rank) const {
  for (const ExpertTable& table :
       content_.ranks[static_cast<size_t>(rank.value())].tables) {
    if (table.layer == layer) return &table;
  }
  return nullptr;
}

Bytes WeightVersion::mapped_bytes() const {
  Bytes total;
  for (const backend::FileMapping& mapping : content_.mappings) {
    total += mapping.size();
  }
  return total;
}

}  // namespace signet::store
