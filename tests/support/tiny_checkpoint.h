#pragma once
// The generated checkpoints on which the engine is compared with transformers:
// each under 2 MB, four layers, weights large enough that every block moves
// the logits. The same bytes on every machine.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace signet::testing {

/// moe_fused_nested     fused experts, nested config, vision and MTP tensors
/// moe_per_expert_text  per-expert tensors, text-only class, untied, shards
/// dense_r3             dense, three value heads a key head
/// moe_top1             one expert a token
/// moe_awkward          sizes that are multiples of nothing; tied
std::vector<std::string> TinyCheckpointNames();
/// Beside them, without reference values: moe_four_kv, which tp=4 divides, for
/// meshes; moe_wide, of 125 MB and two layers as wide as the flagship's, for
/// the kernels of a GPU.

/// Its config.json before it is synthesised.
std::string TinyCheckpointConfig(std::string_view name);

/// Writes the checkpoint of that name into `folder`, which is made and must
/// not exist or be empty. The name must be one of the above.
Result<void> WriteTinyCheckpoint(std::string_view name,
                                 const std::filesystem::path& folder);

}  // namespace signet::testing
