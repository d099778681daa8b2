#pragma once
// Checkpoints of full size that hold headers only: the data is a hole of the
// right length, so that the flagship's manifest and plan are tested on any
// machine. Names and shapes are listed here anew, from the published
// checkpoints, and not taken from the engine's own declaration.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace signet::testing {

struct SparseTensor {
  std::string name;
  std::vector<int64_t> shape;
};

enum class SparseParts {
  kLanguage,           // the text-only class, under `model.`
  kLanguageVisionMtp,  // as published, under `model.language_model.`
};

/// Every tensor of a qwen3_5_moe or qwen3_5 checkpoint of this config, in the
/// fused layout, all BF16.
std::vector<SparseTensor> SparseTensors(std::string_view config_json,
                                        SparseParts parts);

/// Writes config.json, model.safetensors.index.json and `num_shards` sparse
/// shards into `folder`, which is made.
void WriteSparseCheckpoint(const std::filesystem::path& folder,
                           std::string_view config_json, SparseParts parts,
                           int num_shards);

}  // namespace signet::testing
