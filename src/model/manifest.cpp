#include "model/manifest.h"

#include <algorithm>
#include <array>

namespace signet::model {
namespace {

constexpr std::array<std::string_view, kNumRoles> kRoleNames = {
    "embed_tokens",
    "final_norm",
    "lm_head",
    "input_layernorm",
    "post_attention_layernorm",
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "q_norm",
    "k_norm",
    "in_proj_qkv",
    "in_proj_z",
    "in_proj_b",
    "in_proj_a",
    "conv1d",
    "A_log",
    "dt_bias",
    "linear_norm",
    "out_proj",
    "router",
    "shared_gate_proj",
    "shared_up_proj",
    "shared_down_proj",
    "shared_expert_gate",
    "gate_proj",
    "up_proj",
    "down_proj",
};
static_assert(!kRoleNames.back().empty());

}  // namespace

std::string_view Name(Role role) {
  return kRoleNames[static_cast<size_t>(role)];
}

std::optional<WeightId> Manifest::Find(Role role,
                                       std::optional<LayerId> layer) const {
  const auto place = by_role_.find({role, layer});
  if (place == by_role_.end()) return std::nullopt;
  return place->second;
}

const ExpertGroup* Manifest::FindExperts(LayerId layer) const {
  const auto place = std::lower_bound(
      groups_.begin(), groups_.end(), layer,
      [](const ExpertGroup& group, LayerId l) { return group.layer < l; });
  if (place == groups_.end() || place->layer != layer) return nullptr;
  return &*place;
}

}  // namespace signet::model
