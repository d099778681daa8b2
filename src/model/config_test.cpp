#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "model/checkpoint_testing.h"

namespace signet::model {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::Has;
using ::testing::HasSubstr;
using testing::Text;
using testing::TinyConfig;

Result<ModelConfig> Parse(const json& config) {
  return ParseConfig(config.dump(), "config.json");
}

/// The tiny MoE config with one key changed; a discarded value removes it.
Result<ModelConfig> ParseWith(const std::string& key, const json& value) {
  json config = TinyConfig(Family::kQwen35Moe);
  if (value.is_discarded()) {
    config.erase(key);
  } else {
    config[key] = value;
  }
  return Parse(config);
}

json Absent() { return json(json::value_t::discarded); }

TEST(Config, ReadsATextOnlyMoe) {
  const auto config = Parse(TinyConfig(Family::kQwen35Moe));
  ASSERT_TRUE(config.has_value()) << Text(config);
  EXPECT_EQ(config->family, Family::kQwen35Moe);
  EXPECT_EQ(config->model_type, "qwen3_5_moe_text");
  EXPECT_EQ(config->hidden, 8);
  EXPECT_EQ(config->vocab, 11);
  ASSERT_EQ(config->layers.size(), 2u);
  EXPECT_EQ(config->layers[0].mixer, MixerKind::kLinearAttention);
  EXPECT_EQ(config->layers[1].mixer, MixerKind::kFullAttention);
  EXPECT_EQ(config->layers[1].mlp, MlpKind::kMoe);
  EXPECT_EQ(config->rotary_dim, 4);
  EXPECT_EQ(config->rope_theta, 10000.0);
  EXPECT_EQ(config->conv_channels(), 2 * 2 * 4 + 4 * 6);
  EXPECT_EQ(config->max_position, 32768);
  EXPECT_TRUE(config->renormalise);
  EXPECT_FALSE(config->tied_embeddings);
  EXPECT_EQ(config->dense_width, 0);
}

TEST(Config, ReadsANestedTextConfig) {
  json text = TinyConfig(Family::kQwen35);
  const auto flat = Parse(text);
  const json nested = {{"model_type", "qwen3_5"},
                       {"eos_token_id", {7, 3, 7}},
                       {"tie_word_embeddings", true},
                       {"text_config", text}};
  const auto config = Parse(nested);
  ASSERT_TRUE(config.has_value()) << Text(config);
  EXPECT_EQ(config->family, Family::kQwen35);
  EXPECT_EQ(config->dense_width, 12);
  EXPECT_EQ(config->num_experts, 0);
  EXPECT_THAT(config->eos_ids, ElementsAre(3, 7));
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_EQ(config->hidden, flat->hidden);
}

TEST(Config, RefusesAContradictoryTextConfig) {
  json text = TinyConfig(Family::kQwen35);
  EXPECT_TRUE(Has(Parse({{"model_type", "qwen3_5_moe"}, {"text_config", text}}),
                  RejectionCode::kConfigFieldInvalid));
  text["tie_word_embeddings"] = false;
  EXPECT_TRUE(Has(Parse({{"model_type", "qwen3_5"},
                         {"tie_word_embeddings", true},
                         {"text_config", text}}),
                  RejectionCode::kConfigFieldInvalid));
  EXPECT_TRUE(Has(Parse({{"model_type", "qwen3_5"}, {"text_config", 3}}),
                  RejectionCode::kConfigFieldInvalid));
}

TEST(Config, RefusesOtherFamiliesByName) {
  const auto config = ParseWith("model_type", "mixtral");
  EXPECT_TRUE(Has(config, RejectionCode::kFamilyUnsupported));
  EXPECT_THAT(Text(config), HasSubstr("mixtral"));
  EXPECT_TRUE(Has(ParseWith("model_type", Absent()),
                  RejectionCode::kConfigFieldMissing));
}

TEST(Config, RefusesTextThatIsNoObject) {
  for (const char* text : {"", "[]", "{", "3", "{\"a\":1,\"a\":1}"}) {
    EXPECT_TRUE(
        Has(ParseConfig(text, "config.json"), RejectionCode::kJsonInvalid))
        << text;
  }
}

TEST(Config, DerivesLayersFromTheInterval) {
  json config = TinyConfig(Family::kQwen35Moe);
  config.erase("layer_types");
  config["num_hidden_layers"] = 8;
  const auto by_default = Parse(config);
  ASSERT_TRUE(by_default.has_value()) << Text(by_default);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(by_default->layers[i].mixer == MixerKind::kFullAttention,
              i == 3 || i == 7);
  }
  config["full_attention_interval"] = 3;
  EXPECT_EQ(Parse(config)->layers[2].mixer, MixerKind::kFullAttention);
  EXPECT_EQ(Parse(config)->layers[3].mixer, MixerKind::kLinearAttention);
}

TEST(Config, ReadsDenseLayersAmongMoeOnes) {
  json config = TinyConfig(Family::kQwen35Moe);
  config["mlp_only_layers"] = {1};
  EXPECT_TRUE(Has(Parse(config), RejectionCode::kConfigFieldMissing));
  config["intermediate_size"] = 10;
  auto parsed = Parse(config);
  ASSERT_TRUE(parsed.has_value()) << Text(parsed);
  EXPECT_EQ(parsed->layers[0].mlp, MlpKind::kMoe);
  EXPECT_EQ(parsed->layers[1].mlp, MlpKind::kDense);
  config.erase("mlp_only_layers");
  config["decoder_sparse_step"] = 2;
  parsed = Parse(config);
  EXPECT_EQ(parsed->layers[0].mlp, MlpKind::kDense);
  EXPECT_EQ(parsed->layers[1].mlp, MlpKind::kMoe);
}

TEST(Config, EveryRequiredFieldIsMissed) {
  for (const char* key :
       {"hidden_size", "vocab_size", "num_hidden_layers", "rms_norm_eps",
        "num_attention_heads", "num_key_value_heads", "head_dim",
        "rope_parameters", "linear_num_key_heads", "linear_num_value_heads",
        "linear_key_head_dim", "linear_value_head_dim",
        "linear_conv_kernel_dim", "num_experts", "num_experts_per_tok",
        "moe_intermediate_size", "shared_expert_intermediate_size"}) {
    EXPECT_TRUE(
        Has(ParseWith(key, Absent()), RejectionCode::kConfigFieldMissing))
        << key;
    EXPECT_TRUE(
        Has(ParseWith(key, nullptr), RejectionCode::kConfigFieldMissing))
        << key;
  }
}

TEST(Config, EveryFieldIsRangeChecked) {
  const json bad_sizes = {
      0, -1, 8.0, "8", true, json::array({8}), int64_t{1} << 31, UINT64_MAX};
  for (const char* key :
       {"hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "linear_num_key_heads",
        "linear_num_value_heads", "linear_key_head_dim",
        "linear_value_head_dim", "linear_conv_kernel_dim", "num_experts",
        "num_experts_per_tok", "moe_intermediate_size",
        "shared_expert_intermediate_size", "max_position_embeddings",
        "decoder_sparse_step"}) {
    for (const json& value : bad_sizes) {
      const auto config = ParseWith(key, value);
      EXPECT_TRUE(Has(config, RejectionCode::kConfigFieldInvalid))
          << key << ' ' << value;
      EXPECT_THAT(Text(config), HasSubstr(key));
    }
  }
  const auto invalid = [](const char* key, const json& value) {
    return Has(ParseWith(key, value), RejectionCode::kConfigFieldInvalid);
  };
  EXPECT_TRUE(invalid("rms_norm_eps", 0));
  EXPECT_TRUE(invalid("rms_norm_eps", 1e-300));
  EXPECT_TRUE(invalid("rms_norm_eps", "1e-6"));
  EXPECT_TRUE(invalid("num_experts_per_tok", 5));     // of 4 experts
  EXPECT_TRUE(invalid("num_attention_heads", 3));     // of 2 kv heads
  EXPECT_TRUE(invalid("linear_num_value_heads", 3));  // of 2 key heads
  EXPECT_TRUE(invalid("linear_conv_kernel_dim", 1));
  EXPECT_TRUE(invalid("layer_types", {"linear_attention"}));
  EXPECT_TRUE(invalid("layer_types", {1, 2}));
  EXPECT_TRUE(invalid("mlp_only_layers", {2}));
  EXPECT_TRUE(invalid("tie_word_embeddings", 1));
  EXPECT_TRUE(invalid("hidden_act", 1));
  EXPECT_TRUE(invalid("eos_token_id", 11));
  EXPECT_TRUE(invalid("eos_token_id", {1, -1}));
  EXPECT_TRUE(invalid("rope_parameters", 1));
  const auto invalid_rope = [](double theta, double factor) {
    return Has(
        ParseWith("rope_parameters",
                  {{"rope_theta", theta}, {"partial_rotary_factor", factor}}),
        RejectionCode::kConfigFieldInvalid);
  };
  EXPECT_FALSE(invalid_rope(10.0, 1.0));
  EXPECT_TRUE(invalid_rope(0.0, 1.0));
  EXPECT_TRUE(invalid_rope(10.0, 0.0));
  EXPECT_TRUE(invalid_rope(10.0, 1.25));
  EXPECT_TRUE(invalid_rope(10.0, 0.375));  // 3 of 8
}

TEST(Config, SizesThatOverflowAreRefused) {
  const int64_t large = (int64_t{1} << 31) - 2;
  json config = TinyConfig(Family::kQwen35Moe);
  config["head_dim"] = large;
  config["num_attention_heads"] = large;
  EXPECT_TRUE(Has(Parse(config), RejectionCode::kConfigFieldInvalid));
  config = TinyConfig(Family::kQwen35Moe);
  config["vocab_size"] = large;
  config["hidden_size"] = large;
  EXPECT_TRUE(Has(Parse(config), RejectionCode::kConfigFieldInvalid));
  config = TinyConfig(Family::kQwen35Moe);
  config["num_experts"] = 4096;
  config["hidden_size"] = 1 << 30;
  config["moe_intermediate_size"] = 1 << 20;
  EXPECT_TRUE(Has(Parse(config), RejectionCode::kConfigFieldInvalid));
}

TEST(Config, AConvolutionThatOverflowsIsRefused) {
  json config = TinyConfig(Family::kQwen35Moe);
  config["linear_num_key_heads"] = 1;
  config["linear_num_value_heads"] = 1;
  config["linear_key_head_dim"] = (1 << 29) - 1;
  config["linear_value_head_dim"] = 1 << 29;
  EXPECT_TRUE(Parse(config).has_value()) << Text(Parse(config));
  config["linear_conv_kernel_dim"] = (int64_t{1} << 31) - 1;
  EXPECT_TRUE(Has(Parse(config), RejectionCode::kConfigFieldInvalid));
  EXPECT_THAT(Text(Parse(config)), HasSubstr("linear_conv_kernel_dim"));
}

TEST(Config, RefusesWhatIsNotModelledByName) {
  const auto unsupported = [](const char* key, const json& value,
                              const char* named) {
    const auto config = ParseWith(key, value);
    EXPECT_TRUE(Has(config, RejectionCode::kConfigUnsupported)) << key;
    EXPECT_THAT(Text(config), HasSubstr(named));
  };
  unsupported("rope_parameters",
              {{"rope_type", "yarn"}, {"rope_theta", 1e4}, {"factor", 4.0}},
              "yarn");
  unsupported("attention_bias", true, "attention_bias");
  unsupported("hidden_act", "gelu", "gelu");
  unsupported("output_gate_type", "sigmoid", "sigmoid");
  unsupported("attn_output_gate", false, "attn_output_gate");
  unsupported("use_sliding_window", true, "use_sliding_window");
  unsupported("layer_types", {"linear_attention", "chunked_attention"},
              "chunked_attention");
  unsupported("quantization_config", {{"quant_method", "fp8"}}, "fp8");
  json nested = {{"model_type", "qwen3_5"},
                 {"quantization_config", {{"quant_method", "awq"}}},
                 {"text_config", TinyConfig(Family::kQwen35)}};
  EXPECT_TRUE(Has(Parse(nested), RejectionCode::kConfigUnsupported));
}

TEST(Config, OlderRopeKeysServeWhereRopeParametersIsAbsent) {
  json config = TinyConfig(Family::kQwen35Moe);
  config.erase("rope_parameters");
  config["rope_theta"] = 500;
  config["rope_scaling"] = nullptr;
  auto parsed = Parse(config);
  ASSERT_TRUE(parsed.has_value()) << Text(parsed);
  EXPECT_EQ(parsed->rope_theta, 500.0);
  EXPECT_EQ(parsed->rotary_dim, 2);  // a quarter of 8
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_TRUE(Has(Parse(config), RejectionCode::kConfigUnsupported));
  config["rope_parameters"] = {{"rope_theta", 7.0}};
  EXPECT_EQ(Parse(config)->rope_theta, 7.0);
}

TEST(Config, ReportsEveryFaultAtOnce) {
  json config = TinyConfig(Family::kQwen35Moe);
  config["hidden_size"] = 0;
  config.erase("vocab_size");
  config["hidden_act"] = "gelu";
  const auto parsed = Parse(config);
  EXPECT_TRUE(Has(parsed, RejectionCode::kConfigFieldInvalid));
  EXPECT_TRUE(Has(parsed, RejectionCode::kConfigFieldMissing));
  EXPECT_TRUE(Has(parsed, RejectionCode::kConfigUnsupported));
}

TEST(GenerationConfig, ReadsDefaultsAndValues) {
  const auto absent = ParseGenerationConfig("", "generation_config.json");
  ASSERT_TRUE(absent.has_value());
  EXPECT_FALSE(absent->do_sample);
  const auto config = ParseGenerationConfig(
      R"({"do_sample":true,"temperature":0.7,"top_k":20,"top_p":0.95,)"
      R"("eos_token_id":[248046,248044],"bos_token_id":1})",
      "generation_config.json");
  ASSERT_TRUE(config.has_value()) << Text(config);
  EXPECT_TRUE(config->do_sample);
  EXPECT_FLOAT_EQ(config->temperature, 0.7f);
  EXPECT_EQ(config->top_k, 20);
  EXPECT_FLOAT_EQ(config->top_p, 0.95f);
  EXPECT_THAT(config->eos_ids, ElementsAre(248044, 248046));
}

TEST(GenerationConfig, RefusesValuesOutOfRange) {
  for (const char* text :
       {R"({"temperature":-1})", R"({"temperature":1e300})", R"({"top_p":0})",
        R"({"top_p":1.5})", R"({"top_k":-1})", R"({"top_k":2.5})",
        R"({"eos_token_id":"x"})", R"({"do_sample":"yes"})"}) {
    EXPECT_TRUE(Has(ParseGenerationConfig(text, "g.json"),
                    RejectionCode::kConfigFieldInvalid))
        << text;
  }
  EXPECT_TRUE(
      Has(ParseGenerationConfig("[]", "g.json"), RejectionCode::kJsonInvalid));
}

}  // namespace
}  // namespace signet::model
