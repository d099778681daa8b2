#pragma once
// Renders a manifest for people and for programs: what `signet inspect`
// prints. Pure functions; any thread.

#include <string>
#include <string_view>

#include "model/manifest.h"

namespace signet::model {

/// Config, tensors by role, expert groups, what is skipped and why, totals.
std::string InspectText(const Manifest& manifest);

/// One JSON object with the keys config, tensors, expert_groups,
/// skipped and totals; one entry a tensor.
std::string InspectJson(const Manifest& manifest);

/// `qwen3_5_moe`, `qwen3_5`.
std::string_view Name(Family family);
std::string_view Name(MixerKind kind);
std::string_view Name(MlpKind kind);
std::string_view Name(ShardPolicy policy);
std::string_view Name(ExpertLayout layout);

}  // namespace signet::model
