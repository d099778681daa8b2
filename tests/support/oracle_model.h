#pragma once
// The oracle's own view of a checkpoint: configuration and fp64 tensors, with
// its own reader. It shares no code with the engine, so that an error in
// either shows as a difference. Input it cannot read ends the program.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace signet::testing {

struct OracleTensor {
  std::vector<int64_t> shape;
  std::vector<double> data;  // row-major
};

struct OracleConfig {
  int64_t hidden = 0;
  int64_t vocabulary = 0;
  double epsilon = 1e-6;
  bool tied_embeddings = false;
  std::vector<bool> is_full_attention;  // one a layer

  int64_t attention_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dims = 0;
  double rope_theta = 0;

  int64_t linear_key_heads = 0;
  int64_t linear_value_heads = 0;
  int64_t linear_key_dim = 0;  // of one head
  int64_t linear_value_dim = 0;
  int64_t conv_width = 0;  // taps, the current token's included

  bool is_moe = false;
  int64_t experts = 0;
  int64_t experts_per_token = 0;

  int64_t layers() const {
    return static_cast<int64_t>(is_full_attention.size());
  }
};

/// Tensor names have no prefix ("layers.3.self_attn.q_proj.weight",
/// "embed_tokens.weight", "lm_head.weight"); experts are always fused
/// ("layers.0.mlp.experts.gate_up_proj" [E, 2I, H], gate rows first).
struct OracleModel {
  OracleConfig config;
  std::map<std::string, OracleTensor> tensors;
};

/// A qwen3_5_moe or qwen3_5 folder, nested or text-only configuration, one
/// file or shards, fused or per-expert. Vision and MTP tensors are skipped.
OracleModel LoadOracleModel(const std::string& folder);

/// One safetensors file (BF16, F16, F32, I32) as it is: a golden, say.
struct OracleTensorFile {
  std::map<std::string, std::string> metadata;
  std::map<std::string, OracleTensor> tensors;
};
OracleTensorFile ReadOracleTensorFile(const std::string& path);

}  // namespace signet::testing
