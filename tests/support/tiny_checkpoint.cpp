#include "support/tiny_checkpoint.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "model/synth.h"

namespace signet::testing {
namespace {

using model::SynthExperts;
using model::SynthExtras;
using model::SynthNaming;
using nlohmann::json;

constexpr const char* kLinear = "linear_attention";
constexpr const char* kFull = "full_attention";

/// What the five have in common. The deviation of 0.15 instead of 0.02 makes
/// up for the small widths.
json CommonFields() {
  return {
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"attn_output_gate", true},
      {"bos_token_id", nullptr},
      {"dtype", "bfloat16"},
      {"eos_token_id", 0},
      {"head_dim", 32},
      {"hidden_act", "silu"},
      {"hidden_size", 64},
      {"initializer_range", 0.15},
      {"layer_types", {kLinear, kLinear, kLinear, kFull}},
      {"linear_conv_kernel_dim", 4},
      {"linear_key_head_dim", 16},
      {"linear_num_key_heads", 2},
      {"linear_num_value_heads", 4},
      {"linear_value_head_dim", 16},
      {"max_position_embeddings", 4096},
      {"num_attention_heads", 4},
      {"num_hidden_layers", 4},
      {"num_key_value_heads", 2},
      {"pad_token_id", nullptr},
      {"partial_rotary_factor", 0.25},
      {"rms_norm_eps", 1e-6},
      {"rope_parameters",
       {{"mrope_interleaved", true},
        {"mrope_section", {2, 1, 1}},
        {"partial_rotary_factor", 0.25},
        {"rope_theta", 10000.0},
        {"rope_type", "default"}}},
      {"tie_word_embeddings", false},
      {"use_cache", true},
      {"vocab_size", 512},
  };
}

json MoeFields() {
  json fields = CommonFields();
  fields.update({
      {"model_type", "qwen3_5_moe_text"},
      {"moe_intermediate_size", 32},
      {"num_experts", 16},
      {"num_experts_per_tok", 4},
      {"output_router_logits", false},
      {"router_aux_loss_coef", 0.001},
      {"shared_expert_intermediate_size", 32},
  });
  return fields;
}

json DenseR3Fields() {
  json fields = CommonFields();
  fields.update({
      {"intermediate_size", 160},
      {"layer_types", {kLinear, kFull, kLinear, kFull}},
      {"linear_num_value_heads", 6},
      {"model_type", "qwen3_5_text"},
      {"num_attention_heads", 6},
      {"output_gate_type", "swish"},
      {"vocab_size", 384},
  });
  return fields;
}

json Top1Fields() {
  json fields = MoeFields();
  fields.update({
      {"layer_types", {kLinear, kFull, kLinear, kFull}},
      {"num_experts", 8},
      {"num_experts_per_tok", 1},
      {"vocab_size", 256},
  });
  return fields;
}

json AwkwardFields() {
  json fields = MoeFields();
  fields.update({
      {"head_dim", 24},
      {"hidden_size", 96},
      {"linear_conv_kernel_dim", 3},
      {"linear_key_head_dim", 12},
      {"linear_num_value_heads", 6},
      {"linear_value_head_dim", 20},
      {"moe_intermediate_size", 44},
      {"num_attention_heads", 6},
      {"num_experts", 12},
      {"num_experts_per_tok", 3},
      {"shared_expert_intermediate_size", 22},
      {"tie_word_embeddings", true},
      {"vocab_size", 301},
  });
  fields["rope_parameters"]["mrope_section"] = {1, 1, 1};
  return fields;
}

// Divisible by four wherever tp cuts.
json FourKvFields() {
  json fields = MoeFields();
  fields.update({
      {"layer_types", {kLinear, kFull, kLinear, kFull}},
      {"linear_num_key_heads", 4},
      {"linear_num_value_heads", 8},
      {"num_attention_heads", 8},
      {"num_key_value_heads", 4},
      {"vocab_size", 403},
  });
  return fields;
}

// The head and hidden sizes of the flagship, which the fast kernels of a GPU
// are made for.
json WideFields() {
  json fields = MoeFields();
  fields.update({
      {"head_dim", 256},
      {"hidden_size", 2048},
      {"initializer_range", 0.03},
      {"layer_types", {kLinear, kFull}},
      {"linear_key_head_dim", 128},
      {"linear_value_head_dim", 128},
      {"moe_intermediate_size", 128},
      {"num_attention_heads", 16},
      {"num_experts_per_tok", 8},
      {"num_hidden_layers", 2},
      {"shared_expert_intermediate_size", 128},
      {"vocab_size", 1024},
  });
  fields["rope_parameters"]["mrope_section"] = {11, 11, 10};
  return fields;
}

struct TinyCheckpoint {
  const char* name;
  json (*fields)();
  SynthExperts experts;
  SynthNaming naming;
  SynthExtras extras;
  uint64_t seed;
  uint64_t shard_bytes;
};

constexpr uint64_t kOneShard = 1 << 30;

constexpr TinyCheckpoint kCheckpoints[] = {
    {"moe_fused_nested", MoeFields, SynthExperts::kFused, SynthNaming::kNested,
     SynthExtras::kVisionAndMtp, 11, kOneShard},
    {"moe_per_expert_text", MoeFields, SynthExperts::kPerExpert,
     SynthNaming::kTextOnly, SynthExtras::kNone, 12, 400'000},
    {"dense_r3", DenseR3Fields, SynthExperts::kFused, SynthNaming::kNested,
     SynthExtras::kNone, 13, kOneShard},
    {"moe_top1", Top1Fields, SynthExperts::kFused, SynthNaming::kTextOnly,
     SynthExtras::kNone, 14, kOneShard},
    {"moe_awkward", AwkwardFields, SynthExperts::kFused, SynthNaming::kTextOnly,
     SynthExtras::kNone, 23, kOneShard},
};

// Not among TinyCheckpointNames: no reference values exist for them.
constexpr TinyCheckpoint kOthers[] = {
    {"moe_four_kv", FourKvFields, SynthExperts::kFused, SynthNaming::kTextOnly,
     SynthExtras::kNone, 16, kOneShard},
    {"moe_wide", WideFields, SynthExperts::kFused, SynthNaming::kTextOnly,
     SynthExtras::kNone, 17, kOneShard},
};

const TinyCheckpoint& Named(std::string_view name) {
  const TinyCheckpoint* found = nullptr;
  const auto look_in = [&](std::span<const TinyCheckpoint> checkpoints) {
    for (const TinyCheckpoint& checkpoint : checkpoints) {
      if (name == checkpoint.name) found = &checkpoint;
    }
  };
  look_in(kCheckpoints);
  look_in(kOthers);
  SIGNET_CHECK(found != nullptr);
  return *found;
}

}  // namespace

std::vector<std::string> TinyCheckpointNames() {
  std::vector<std::string> names;
  for (const TinyCheckpoint& checkpoint : kCheckpoints) {
    names.push_back(checkpoint.name);
  }
  return names;
}

std::string TinyCheckpointConfig(std::string_view name) {
  return Named(name).fields().dump(2);
}

Result<void> WriteTinyCheckpoint(std::string_view name,
                                 const std::filesystem::path& folder) {
  const TinyCheckpoint& tiny = Named(name);
  // Synthesize reads its config from a file.
  std::filesystem::path config_path = folder;
  config_path += ".config.json";
  std::ofstream(config_path) << TinyCheckpointConfig(name);
  Result<model::SynthReport> report = model::Synthesize({
      .config = config_path.string(),
      .folder = folder,
      .layers = {},
      .vocab = {},
      .seed = tiny.seed,
      .threads = 1,
      .experts = tiny.experts,
      .naming = tiny.naming,
      .extras = tiny.extras,
      .shard_bytes = tiny.shard_bytes,
  });
  std::error_code ignored;
  std::filesystem::remove(config_path, ignored);
  if (!report.has_value()) {
    return tl::unexpected<Error>(std::move(report).error());
  }
  return {};
}

}  // namespace signet::testing
