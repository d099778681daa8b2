#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/config_fields.h"
#include "model/strict_json.h"

namespace signet::model {
namespace {

using nlohmann::json;

// What transformers takes when the key is absent.
constexpr int64_t kDefaultFullAttentionInterval = 4;
constexpr int64_t kDefaultMaxPosition = 32768;
constexpr double kDefaultPartialRotaryFactor = 0.25;

struct ModelTypeName {
  std::string_view name;
  Family family;
};
constexpr ModelTypeName kModelTypes[] = {
    {"qwen3_5_moe", Family::kQwen35Moe},
    {"qwen3_5_moe_text", Family::kQwen35Moe},
    {"qwen3_5", Family::kQwen35},
    {"qwen3_5_text", Family::kQwen35},
};

/// Fills one ModelConfig. `top` is the whole file, `text` the object with the
/// language model's fields (the same object for a text-only class).
class ConfigParser {
 public:
  ConfigParser(const json& top, const json& text, const std::string& path,
               RejectionList* rejections)
      : top_(top, path, rejections),
        text_(text, &top == &text ? path : path + ": text_config", rejections),
        is_nested_(&top != &text),
        rejections_(rejections) {}

  ModelConfig Parse(Family family, std::string model_type) {
    config_.family = family;
    config_.model_type = std::move(model_type);
    ParseModelWide();
    ParseLayers();
    ParseFullAttention();
    ParseRope();
    ParseDeltaNet();
    ParseFeedForward();
    RefuseUnsupported();
    CheckSizes();
    return std::move(config_);
  }

 private:
  void ParseModelWide() {
    config_.hidden = text_.Positive("hidden_size");
    config_.vocab = text_.Positive("vocab_size");
    config_.max_position =
        text_.PositiveOr("max_position_embeddings", kDefaultMaxPosition);
    if (!text_.Has("rms_norm_eps")) {
      text_.Missing("rms_norm_eps");
    } else if (const auto eps = text_.Number("rms_norm_eps")) {
      config_.rms_eps = static_cast<float>(*eps);
      if (!(config_.rms_eps > 0.0f && config_.rms_eps < 1.0f)) {
        text_.Invalid("rms_norm_eps", "the field is out of range",
                      "more than 0, less than 1");
      }
    }
    ParseTie();
    const int64_t bound = config_.vocab > 0 ? config_.vocab : kDimensionBound;
    config_.eos_ids = text_.Ids("eos_token_id", bound);
    if (is_nested_ && config_.eos_ids.empty()) {
      config_.eos_ids = top_.Ids("eos_token_id", bound);
    }
  }

  void ParseTie() {
    constexpr std::string_view kKey = "tie_word_embeddings";
    config_.tied_embeddings = text_.BoolOr(kKey, false);
    if (!is_nested_ || !top_.Has(kKey)) return;
    const bool tied_at_top = top_.BoolOr(kKey, false);
    if (text_.Has(kKey) && tied_at_top != config_.tied_embeddings) {
      top_.Invalid(kKey, "text_config contradicts the field", "equal values");
    }
    config_.tied_embeddings = tied_at_top;
  }

  void ParseLayers() {
    const int64_t num_layers =
        text_.Positive("num_hidden_layers", kLayersBound);
    config_.layers.assign(
        static_cast<size_t>(num_layers),
        {MixerKind::kLinearAttention, config_.family == Family::kQwen35Moe
                                          ? MlpKind::kMoe
                                          : MlpKind::kDense});
    if (text_.Has("layer_types")) {
      ParseLayerTypes();
    } else {
      const int64_t interval = text_.PositiveOr("full_attention_interval",
                                                kDefaultFullAttentionInterval);
      for (int64_t i = 0; interval > 0 && i < num_layers; ++i) {
        if ((i + 1) % interval == 0) {
          config_.layers[static_cast<size_t>(i)].mixer =
              MixerKind::kFullAttention;
        }
      }
    }
    if (config_.family == Family::kQwen35Moe) ParseDenseLayers();
  }

  void ParseLayerTypes() {
    const json& types = *text_.Get("layer_types");
    if (!types.is_array() || types.size() != config_.layers.size()) {
      text_.Invalid("layer_types", "not a list with one entry a layer",
                    fmt::format("{} entries", config_.layers.size()));
      return;
    }
    for (size_t i = 0; i < types.size(); ++i) {
      const auto* type = types[i].get_ptr<const json::string_t*>();
      if (type == nullptr) {
        text_.Invalid("layer_types", "a layer type is not a string",
                      "linear_attention or full_attention");
        return;
      }
      if (*type == "linear_attention") {
        config_.layers[i].mixer = MixerKind::kLinearAttention;
      } else if (*type == "full_attention") {
        config_.layers[i].mixer = MixerKind::kFullAttention;
      } else {
        text_.Unsupported("layer_types",
                          fmt::format("layer {} has type {}, which is not one "
                                      "that is modelled",
                                      i, Shown(types[i])));
        return;
      }
    }
  }

  /// Dense layers among MoE ones.
  void ParseDenseLayers() {
    const int64_t step = text_.PositiveOr("decoder_sparse_step", 1);
    const std::vector<int32_t> dense = text_.Ids(
        "mlp_only_layers",
        std::max<int64_t>(static_cast<int64_t>(config_.layers.size()), 1));
    for (size_t i = 0; i < config_.layers.size(); ++i) {
      const bool on_step =
          step > 0 && (static_cast<int64_t>(i) + 1) % step == 0;
      const bool listed = std::binary_search(dense.begin(), dense.end(),
                                             static_cast<int32_t>(i));
      if (!on_step || listed) config_.layers[i].mlp = MlpKind::kDense;
    }
  }

  void ParseFullAttention() {
    config_.num_heads = text_.Positive("num_attention_heads");
    config_.num_kv_heads = text_.Positive("num_key_value_heads");
    config_.head_dim = text_.Positive("head_dim");
    RequireMultiple("num_attention_heads", config_.num_heads,
                    "num_key_value_heads", config_.num_kv_heads);
  }

  void ParseRope() {
    std::optional<double> theta;
    std::optional<double> factor;
    std::string_view rope_key = "rope_parameters";
    if (!text_.Has(rope_key)) rope_key = "rope_scaling";
    if (const json* rope = text_.Get(rope_key)) {
      if (!rope->is_object()) {
        text_.Invalid(rope_key, "the field is not an object", "an object");
        return;
      }
      FieldReader fields(*rope, text_.Where(rope_key), rejections_);
      const std::string_view type_key =
          fields.Has("rope_type") ? "rope_type" : "type";
      if (const std::string type = fields.StringOr(type_key, "default");
          type != "default") {
        fields.Unsupported(
            type_key, fmt::format("rope scaling {} is not modelled", type));
      }
      theta = fields.Number("rope_theta");
      factor = fields.Number("partial_rotary_factor");
    }
    if (!theta) theta = text_.Number("rope_theta");
    if (!factor) factor = text_.Number("partial_rotary_factor");
    if (!theta) {
      text_.Missing("rope_theta");
    } else if (*theta <= 0) {
      text_.Invalid("rope_theta", "the base is not positive", "more than 0");
    } else {
      config_.rope_theta = *theta;
    }
    ParseRotaryDim(factor.value_or(kDefaultPartialRotaryFactor));
  }

  void ParseRotaryDim(double factor) {
    if (!(factor > 0.0 && factor <= 1.0)) {
      text_.Invalid("partial_rotary_factor", "the factor is out of range",
                    "more than 0, at most 1");
      return;
    }
    if (config_.head_dim == 0) return;
    // Truncated, as transformers does.
    config_.rotary_dim =
        static_cast<int64_t>(static_cast<double>(config_.head_dim) * factor);
    if (config_.rotary_dim < 2 || config_.rotary_dim % 2 != 0) {
      text_.Invalid(
          "partial_rotary_factor",
          fmt::format("it gives {} rotated dimensions", config_.rotary_dim),
          "an even number of at least 2");
    }
  }

  void ParseDeltaNet() {
    config_.linear_key_heads = text_.Positive("linear_num_key_heads");
    config_.linear_value_heads = text_.Positive("linear_num_value_heads");
    config_.linear_key_dim = text_.Positive("linear_key_head_dim");
    config_.linear_value_dim = text_.Positive("linear_value_head_dim");
    config_.conv_taps = text_.Positive("linear_conv_kernel_dim");
    if (config_.conv_taps == 1) {
      text_.Invalid("linear_conv_kernel_dim", "a conv of one tap has no state",
                    "at least 2");
    }
    RequireMultiple("linear_num_value_heads", config_.linear_value_heads,
                    "linear_num_key_heads", config_.linear_key_heads);
  }

  void ParseFeedForward() {
    const auto has = [this](MlpKind kind) {
      return std::any_of(
          config_.layers.begin(), config_.layers.end(),
          [&](const LayerConfig& layer) { return layer.mlp == kind; });
    };
    if (config_.family == Family::kQwen35 || has(MlpKind::kDense)) {
      config_.dense_width = text_.Positive("intermediate_size");
    }
    if (config_.family != Family::kQwen35Moe) return;
    config_.num_experts = text_.Positive("num_experts", kExpertsBound);
    config_.top_k = text_.Positive("num_experts_per_tok", kExpertsBound);
    config_.expert_width = text_.Positive("moe_intermediate_size");
    config_.shared_width = text_.Positive("shared_expert_intermediate_size");
    config_.renormalise = text_.BoolOr("norm_topk_prob", true);
    if (config_.num_experts > 0 && config_.top_k > config_.num_experts) {
      text_.Invalid("num_experts_per_tok", "more than there are experts",
                    fmt::format("at most {}", config_.num_experts));
    }
  }

  void RefuseUnsupported() {
    if (text_.BoolOr("attention_bias", false)) {
      text_.Unsupported("attention_bias", "attention biases are not modelled");
    }
    if (text_.StringOr("hidden_act", "silu") != "silu") {
      text_.Unsupported("hidden_act", "only silu is modelled");
    }
    if (const std::string gate = text_.StringOr("output_gate_type", "silu");
        gate != "silu" && gate != "swish") {
      text_.Unsupported("output_gate_type", "only silu (swish) is modelled");
    }
    if (!text_.BoolOr("attn_output_gate", true)) {
      text_.Unsupported("attn_output_gate",
                        "attention without an output gate is not modelled");
    }
    if (text_.BoolOr("use_sliding_window", false)) {
      text_.Unsupported("use_sliding_window",
                        "sliding windows are not modelled");
    }
    RefuseQuantisation(&text_);
    if (is_nested_) RefuseQuantisation(&top_);
  }

  void RefuseQuantisation(FieldReader* fields) {
    const json* quantisation = fields->Get("quantization_config");
    if (quantisation == nullptr) return;
    std::string method = "(unnamed)";
    if (quantisation->is_object() && quantisation->contains("quant_method")) {
      method = Shown((*quantisation)["quant_method"]);
    }
    fields->Unsupported("quantization_config",
                        fmt::format("weights of quantisation {} are not "
                                    "supported",
                                    method));
  }

  /// Rows of every matrix stay below kDimensionBound, bytes below 2^63.
  void CheckSizes() {
    const auto check_rows = [this](std::string_view key, int64_t rows_a,
                                   int64_t rows_b, int64_t factor) {
      text_.CheckProduct(key, {rows_a, rows_b, factor}, kDimensionBound);
      // Four bytes an element, [rows, hidden] or its transpose.
      text_.CheckProduct(key, {rows_a, rows_b, factor, config_.hidden, 4},
                         INT64_MAX);
    };
    check_rows("vocab_size", config_.vocab, 1, 1);
    check_rows("head_dim", config_.num_heads, config_.head_dim, 2);
    check_rows("linear_key_head_dim", config_.linear_key_heads,
               config_.linear_key_dim, 4);
    check_rows("linear_value_head_dim", config_.linear_value_heads,
               config_.linear_value_dim, 2);
    check_rows("intermediate_size", config_.dense_width, 1, 1);
    check_rows("shared_expert_intermediate_size", config_.shared_width, 1, 1);
    check_rows("moe_intermediate_size", config_.expert_width, 1, 2);
    text_.CheckProduct(
        "moe_intermediate_size",
        {config_.num_experts, config_.expert_width, 2, config_.hidden, 4},
        INT64_MAX);
    // The channels are a sum, which is of use once its parts are in range.
    if (!rejections_->empty()) return;
    text_.CheckProduct("linear_conv_kernel_dim",
                       {config_.conv_channels(), config_.conv_taps, 4},
                       INT64_MAX);
  }

  void RequireMultiple(std::string_view key, int64_t value,
                       std::string_view of_key, int64_t of) {
    if (value == 0 || of == 0 || value % of == 0) return;
    text_.Invalid(key, fmt::format("not a multiple of {}", of_key),
                  fmt::format("a multiple of {}", of));
  }

  FieldReader top_;
  FieldReader text_;
  bool is_nested_;
  RejectionList* rejections_;
  ModelConfig config_;
};

Result<Family> FamilyOf(const json& top, const std::string& path) {
  const auto place = top.find("model_type");
  if (place == top.end() || !place->is_string()) {
    return Reject(RejectionCode::kConfigFieldMissing, path + ": model_type",
                  "the config does not name its model type");
  }
  for (const ModelTypeName& known : kModelTypes) {
    if (place->get_ref<const json::string_t&>() == known.name) {
      return known.family;
    }
  }
  return Reject(RejectionCode::kFamilyUnsupported, path + ": model_type",
                "the model type is not supported", Shown(*place),
                "qwen3_5_moe or qwen3_5, or their _text classes");
}

/// The object that holds the language model's fields.
Result<const json*> TextConfigOf(const json& top, Family family,
                                 const std::string& path) {
  const auto place = top.find("text_config");
  if (place == top.end() || place->is_null()) return &top;
  const std::string where = path + ": text_config";
  if (!place->is_object()) {
    return Reject(RejectionCode::kConfigFieldInvalid, where,
                  "the field is not an object", Shown(*place), "an object");
  }
  if (place->contains("model_type")) {
    const Result<Family> inner = FamilyOf(*place, where);
    if (!inner.has_value()) return tl::unexpected<Error>(inner.error());
    if (*inner != family) {
      return Reject(RejectionCode::kConfigFieldInvalid, where + ".model_type",
                    "text_config is of another family",
                    Shown((*place)["model_type"]), Shown(top["model_type"]));
    }
  }
  return &*place;
}

}  // namespace

Result<ModelConfig> ParseConfig(std::string_view text,
                                const std::string& path) {
  const tl::expected<JsonTree, JsonFault> parsed = ParseStrictJson(text);
  if (!parsed.has_value()) {
    return Reject(RejectionCode::kJsonInvalid, path, parsed.error().message,
                  parsed.error().duplicate_key.value_or(""));
  }
  if (!parsed->is_object()) {
    return Reject(RejectionCode::kJsonInvalid, path,
                  "the file is not a JSON object");
  }
  SIGNET_ASSIGN_OR_RETURN(const Family family, FamilyOf(*parsed, path));
  SIGNET_ASSIGN_OR_RETURN(const json* fields,
                          TextConfigOf(*parsed, family, path));
  RejectionList rejections;
  ConfigParser parser(*parsed, *fields, path, &rejections);
  ModelConfig config =
      parser.Parse(family, (*parsed)["model_type"].get<std::string>());
  if (!rejections.empty()) return rejections.Take();
  return config;
}

}  // namespace signet::model
