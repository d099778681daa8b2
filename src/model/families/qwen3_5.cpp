#include "model/families/qwen3_5.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace signet::model {
namespace {

using tensor::Shape;

constexpr std::array<std::string_view, 2> kPrefixes = {"model.language_model.",
                                                       "model."};
constexpr std::array<std::string_view, 3> kLanguageParts = {"embed_tokens.",
                                                            "layers.", "norm."};
constexpr std::array<SkipRule, 3> kSkipRules = {{
    {"model.visual.", "vision"},
    {"visual.", "vision"},
    {"mtp.", "mtp"},
}};

class Declarer {
 public:
  Declarer(const ModelConfig& config, std::string_view prefix)
      : c_(config), prefix_(prefix) {}

  Declaration Declare() {
    const Shape table{c_.vocab, c_.hidden};
    Add(Role::kEmbedding, prefix_ + "embed_tokens.weight", table,
        ShardPolicy::kReplicate);
    for (size_t i = 0; i < c_.layers.size(); ++i) {
      layer_ = LayerId(static_cast<int32_t>(i));
      DeclareLayer(c_.layers[i]);
    }
    layer_.reset();
    Add(Role::kFinalNorm, prefix_ + "norm.weight", {c_.hidden},
        ShardPolicy::kReplicate);
    if (!c_.tied_embeddings) {
      Add(Role::kLmHead, std::string(kQwen35LmHead), table,
          ShardPolicy::kVocabularyRows);
    }
    return std::move(declaration_);
  }

 private:
  void DeclareLayer(const LayerConfig& layer) {
    AddToLayer(Role::kInputNorm, "input_layernorm.weight", {c_.hidden},
               ShardPolicy::kReplicate);
    if (layer.mixer == MixerKind::kLinearAttention) {
      DeclareDeltaNet();
    } else {
      DeclareAttention();
    }
    AddToLayer(Role::kPostNorm, "post_attention_layernorm.weight", {c_.hidden},
               ShardPolicy::kReplicate);
    if (layer.mlp == MlpKind::kMoe) {
      DeclareMoe();
    } else {
      DeclareDense();
    }
  }

  void DeclareAttention() {
    const int64_t query_rows = c_.num_heads * c_.head_dim;
    const int64_t kv_rows = c_.num_kv_heads * c_.head_dim;
    const auto add = [this](Role role, std::string_view name, Shape shape,
                            ShardPolicy shard) {
      AddToLayer(role, fmt::format("self_attn.{}.weight", name), shape, shard);
    };
    // Each head's rows are its query, then its output gate.
    add(Role::kQProj, "q_proj", {2 * query_rows, c_.hidden},
        ShardPolicy::kHeadRows);
    add(Role::kKProj, "k_proj", {kv_rows, c_.hidden}, ShardPolicy::kHeadRows);
    add(Role::kVProj, "v_proj", {kv_rows, c_.hidden}, ShardPolicy::kHeadRows);
    add(Role::kOProj, "o_proj", {c_.hidden, query_rows}, ShardPolicy::kColumns);
    add(Role::kQNorm, "q_norm", {c_.head_dim}, ShardPolicy::kReplicate);
    add(Role::kKNorm, "k_norm", {c_.head_dim}, ShardPolicy::kReplicate);
  }

  void DeclareDeltaNet() {
    const int64_t heads = c_.linear_value_heads;
    const int64_t value_rows = heads * c_.linear_value_dim;
    const int64_t channels = c_.conv_channels();
    const auto add = [this](Role role, std::string_view name, Shape shape,
                            ShardPolicy shard) {
      AddToLayer(role, fmt::format("linear_attn.{}", name), shape, shard);
    };
    add(Role::kInProjQkv, "in_proj_qkv.weight", {channels, c_.hidden},
        ShardPolicy::kQkvRowBlocks);
    add(Role::kInProjZ, "in_proj_z.weight", {value_rows, c_.hidden},
        ShardPolicy::kHeadRows);
    add(Role::kInProjB, "in_proj_b.weight", {heads, c_.hidden},
        ShardPolicy::kHeadRows);
    add(Role::kInProjA, "in_proj_a.weight", {heads, c_.hidden},
        ShardPolicy::kHeadRows);
    add(Role::kConv, "conv1d.weight", {channels, c_.conv_taps},
        ShardPolicy::kQkvRowBlocks);
    declaration_.weights.back().stored_shape = {channels, 1, c_.conv_taps};
    add(Role::kALog, "A_log", {heads}, ShardPolicy::kHeadRows);
    add(Role::kDtBias, "dt_bias", {heads}, ShardPolicy::kHeadRows);
    add(Role::kLinearNorm, "norm.weight", {c_.linear_value_dim},
        ShardPolicy::kReplicate);
    add(Role::kOutProj, "out_proj.weight", {c_.hidden, value_rows},
        ShardPolicy::kColumns);
  }

  void DeclareMoe() {
    AddToLayer(Role::kRouter, "mlp.gate.weight", {c_.num_experts, c_.hidden},
               ShardPolicy::kReplicate);
    declaration_.experts.push_back({
        .layer = *layer_,
        .prefix = LayerPrefix() + "mlp.experts.",
        .num_experts = c_.num_experts,
        .top_k = c_.top_k,
        .hidden = c_.hidden,
        .width = c_.expert_width,
    });
    AddToLayer(Role::kSharedGate, "mlp.shared_expert.gate_proj.weight",
               {c_.shared_width, c_.hidden}, ShardPolicy::kRows);
    AddToLayer(Role::kSharedUp, "mlp.shared_expert.up_proj.weight",
               {c_.shared_width, c_.hidden}, ShardPolicy::kRows);
    AddToLayer(Role::kSharedDown, "mlp.shared_expert.down_proj.weight",
               {c_.hidden, c_.shared_width}, ShardPolicy::kColumns);
    AddToLayer(Role::kSharedRouter, "mlp.shared_expert_gate.weight",
               {1, c_.hidden}, ShardPolicy::kReplicate);
  }

  void DeclareDense() {
    AddToLayer(Role::kMlpGate, "mlp.gate_proj.weight",
               {c_.dense_width, c_.hidden}, ShardPolicy::kRows);
    AddToLayer(Role::kMlpUp, "mlp.up_proj.weight", {c_.dense_width, c_.hidden},
               ShardPolicy::kRows);
    AddToLayer(Role::kMlpDown, "mlp.down_proj.weight",
               {c_.hidden, c_.dense_width}, ShardPolicy::kColumns);
  }

  std::string LayerPrefix() const {
    return fmt::format("{}layers.{}.", prefix_, layer_->value());
  }
  void AddToLayer(Role role, std::string_view name, Shape shape,
                  ShardPolicy shard) {
    Add(role, LayerPrefix().append(name), shape, shard);
  }
  void Add(Role role, std::string name, Shape shape, ShardPolicy shard) {
    declaration_.weights.push_back({.role = role,
                                    .layer = layer_,
                                    .name = std::move(name),
                                    .shape = shape,
                                    .stored_shape = shape,
                                    .shard = shard});
  }

  const ModelConfig& c_;
  std::string prefix_;
  std::optional<LayerId> layer_;
  Declaration declaration_;
};

}  // namespace

FamilyNames Qwen35Names() { return {kPrefixes, kLanguageParts, kSkipRules}; }

Declaration DeclareQwen35(const ModelConfig& config, std::string_view prefix) {
  return Declarer(config, prefix).Declare();
}

}  // namespace signet::model
