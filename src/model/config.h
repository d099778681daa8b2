#pragma once
// The arithmetic of one model, as its config.json states it: every number a
// program needs, proven positive and consistent. Made by ParseConfig alone.
// Values; immutable once published inside a Manifest.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace signet::model {

enum class Family {
  kQwen35Moe,  // qwen3_5_moe: routed experts and a gated shared expert
  kQwen35,     // qwen3_5: dense SwiGLU
};

/// Layers and experts of a model stay below these: generous, and small enough
/// that a list of both fits in memory whatever a config claims.
inline constexpr int64_t kLayersBound = 1024;
inline constexpr int64_t kExpertsBound = 4097;

enum class MixerKind { kLinearAttention, kFullAttention };
enum class MlpKind { kDense, kMoe };

struct LayerConfig {
  MixerKind mixer;
  MlpKind mlp;
  friend bool operator==(const LayerConfig&, const LayerConfig&) = default;
};

struct ModelConfig {
  Family family;
  std::string model_type;  // as written: "qwen3_5_moe_text", ...
  int64_t hidden = 0;      // H
  int64_t vocab = 0;       // V, rows of the embedding
  std::vector<LayerConfig> layers;
  bool tied_embeddings = false;
  int64_t max_position = 0;
  float rms_eps = 0;

  // Full attention.
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;  // even, <= head_dim
  double rope_theta = 0;

  // Gated DeltaNet.
  int64_t linear_key_heads = 0;
  int64_t linear_value_heads = 0;  // a multiple of linear_key_heads
  int64_t linear_key_dim = 0;
  int64_t linear_value_dim = 0;
  int64_t conv_taps = 0;  // >= 2; the state holds conv_taps - 1 columns

  // Feed-forward. Widths are 0 where the family has none.
  int64_t dense_width = 0;
  int64_t num_experts = 0;   // E
  int64_t top_k = 0;         // K <= E
  int64_t expert_width = 0;  // I
  int64_t shared_width = 0;
  bool renormalise = true;  // router weights divided by their sum

  std::vector<int32_t> eos_ids;  // of config.json, ascending

  /// Channels of the conv: q, k and v of all linear heads.
  int64_t conv_channels() const {
    return 2 * linear_key_heads * linear_key_dim +
           linear_value_heads * linear_value_dim;
  }
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

/// Parses a config.json (nested `text_config` or text-only class). Every
/// missing or invalid field is a rejection with its key.
Result<ModelConfig> ParseConfig(std::string_view json, const std::string& path);

/// Sampling defaults and stop ids of generation_config.json.
struct GenerationConfig {
  bool do_sample = false;
  float temperature = 1.0f;
  int32_t top_k = 0;   // 0: no limit
  float top_p = 1.0f;  // 1: no limit
  std::vector<int32_t> eos_ids;
};

Result<GenerationConfig> ParseGenerationConfig(std::string_view json,
                                               const std::string& path);

}  // namespace signet::model
