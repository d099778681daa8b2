#include "store/weight_ranges.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace signet::store {
namespace {

using model::FileRange;

// `reads` is asked of each weight that is no alias, by its id, and `has` of
// each expert of a group.
template <typename Reads, typename Has>
std::vector<WeightRange> RangesOf(const model::Manifest& manifest, Reads reads,
                                  Has has) {
  std::vector<WeightRange> ranges;
  for (size_t i = 0; i < manifest.weights().size(); ++i) {
    const WeightId id(static_cast<int32_t>(i));
    const model::WeightEntry& weight = manifest.weights()[id];
    if (weight.alias_of || !reads(id)) continue;
    ranges.push_back({.file_range = weight.source,
                      .dtype = weight.dtype,
                      .is_sensitive = IsSensitive(weight.role)});
  }
  for (const model::ExpertGroup& group : manifest.expert_groups()) {
    for (int32_t e = 0; e < static_cast<int32_t>(group.num_experts); ++e) {
      const ExpertId expert(e);
      if (!has(group.layer, expert)) continue;
      for (const model::ExpertProjection* projection :
           {&group.gate, &group.up, &group.down}) {
        ranges.push_back({.file_range = projection->sources[expert],
                          .dtype = projection->dtype,
                          .is_sensitive = false});
      }
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const WeightRange& a, const WeightRange& b) {
              return std::pair(a.file_range.file, a.file_range.begin_bytes) <
                     std::pair(b.file_range.file, b.file_range.begin_bytes);
            });
  return ranges;
}

}  // namespace

bool IsSensitive(model::Role role) {
  using model::Role;
  switch (role) {
    case Role::kFinalNorm:
    case Role::kInputNorm:
    case Role::kPostNorm:
    case Role::kQNorm:
    case Role::kKNorm:
    case Role::kLinearNorm:
    case Role::kRouter:
    case Role::kSharedRouter:
    case Role::kALog:
    case Role::kDtBias:
      return true;
    case Role::kEmbedding:
    case Role::kLmHead:
    case Role::kQProj:
    case Role::kKProj:
    case Role::kVProj:
    case Role::kOProj:
    case Role::kInProjQkv:
    case Role::kInProjZ:
    case Role::kInProjB:
    case Role::kInProjA:
    case Role::kConv:
    case Role::kOutProj:
    case Role::kSharedGate:
    case Role::kSharedUp:
    case Role::kSharedDown:
    case Role::kMlpGate:
    case Role::kMlpUp:
    case Role::kMlpDown:
      return false;
  }
  return true;
}

std::vector<WeightRange> WeightRanges(const model::Manifest& manifest) {
  return RangesOf(
      manifest, [](WeightId) { return true; },
      [](LayerId, ExpertId) { return true; });
}

std::vector<WeightRange> WeightRanges(const plan::ModelPlan& plan,
                                      const std::vector<Rank>& ranks) {
  const model::Manifest& manifest = plan.manifest();
  // An alias is read where its owner lies, maybe by a rank that holds no owner.
  IdVector<WeightId, uint8_t> read(manifest.weights().size());
  for (size_t i = 0; i < manifest.weights().size(); ++i) {
    const WeightId id(static_cast<int32_t>(i));
    const bool held = std::any_of(ranks.begin(), ranks.end(), [&](Rank rank) {
      return plan.weights().shard(id, rank).held;
    });
    if (held) read[manifest.weights()[id].alias_of.value_or(id)] = 1;
  }
  return RangesOf(
      manifest, [&](WeightId id) { return read[id] != 0; },
      [&](LayerId layer, ExpertId expert) {
        return std::any_of(ranks.begin(), ranks.end(), [&](Rank rank) {
          const plan::ExpertView* view = plan.experts().View(layer, rank);
          return view != nullptr && view->Local(expert).has_value();
        });
      });
}

}  // namespace signet::store
