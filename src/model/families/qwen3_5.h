#pragma once
// Qwen3.5 and Qwen3.6, MoE and dense: gated DeltaNet and gated full attention,
// zero-centred norms, a gated shared expert beside the routed ones.

#include <string_view>

#include "model/families/declaration.h"

namespace signet::model {

FamilyNames Qwen35Names();

/// Every tensor that a checkpoint of `config` holds for the language model,
/// under `prefix` (`model.language_model.`, or `model.` for the text-only
/// class). A tied lm_head is not among them.
Declaration DeclareQwen35(const ModelConfig& config, std::string_view prefix);

/// `lm_head.weight`, which has no prefix.
inline constexpr std::string_view kQwen35LmHead = "lm_head.weight";

}  // namespace signet::model
