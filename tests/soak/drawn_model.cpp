#include "soak/drawn_model.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/synth.h"
#include "support/running_model.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {

using nlohmann::json;

DrawnModel DrawModel(Draw& draw) {
  DrawnModel model;
  model.dense = draw.Below(6) == 0;
  json config = json::parse(
      TinyCheckpointConfig(model.dense ? "dense_r3" : "moe_per_expert_text"));
  const auto one_of = [&](const std::vector<int>& values) {
    return draw.OneOf(values);
  };
  json layers = json::array();
  const size_t num_layers = 1 + draw.Below(3);
  for (size_t i = 0; i < num_layers; ++i) {
    layers.push_back(draw.Below(2) == 0 ? "linear_attention"
                                        : "full_attention");
  }
  config["layer_types"] = layers;
  config["num_hidden_layers"] = num_layers;
  config["hidden_size"] = one_of({32, 48, 64, 80});
  const bool wide = draw.Below(2) == 0;
  config["head_dim"] = wide ? 32 : 24;
  config["rope_parameters"]["mrope_section"] =
      wide ? std::vector<int>{2, 1, 1} : std::vector<int>{1, 1, 1};
  const int kv_heads = one_of({1, 2, 4});
  config["num_key_value_heads"] = kv_heads;
  config["num_attention_heads"] = kv_heads * one_of({1, 2, 3});
  const int key_heads = one_of({1, 2, 4});
  config["linear_num_key_heads"] = key_heads;
  config["linear_num_value_heads"] = key_heads * one_of({1, 2, 3});
  config["linear_key_head_dim"] = one_of({8, 12, 16});
  config["linear_value_head_dim"] = one_of({8, 16, 20});
  config["linear_conv_kernel_dim"] = one_of({2, 3, 4});
  config["tie_word_embeddings"] = draw.Below(2) == 0;
  model.vocab = one_of({301, 320, 384});
  config["vocab_size"] = model.vocab;
  if (model.dense) {
    config["intermediate_size"] = one_of({32, 44, 96});
  } else {
    model.experts = one_of({2, 3, 4, 6, 8, 8, 12, 16, 16, 24});
    config["num_experts"] = model.experts;
    config["num_experts_per_tok"] =
        1 +
        draw.Below(static_cast<size_t>(std::min<int64_t>(4, model.experts)));
    config["moe_intermediate_size"] = one_of({16, 24, 44});
    config["shared_expert_intermediate_size"] = one_of({16, 22, 32});
    model.per_expert_files = draw.Below(2) == 0;
  }
  model.config = config.dump();
  model.seed = draw.Seed();
  return model;
}

void WriteDrawn(const DrawnModel& model, const std::filesystem::path& folder) {
  const std::filesystem::path config = folder.string() + ".json";
  std::ofstream(config) << model.config;
  ValueOrDie(model::Synthesize({.config = config.string(),
                                .folder = folder,
                                .seed = model.seed,
                                .threads = 1,
                                .experts = model.per_expert_files
                                               ? model::SynthExperts::kPerExpert
                                               : model::SynthExperts::kFused}));
  std::filesystem::remove(config);
}

std::vector<std::string> AllMeshes() {
  return {"ep=1", "ep=2",  "ep=4",      "ep=8",     "ep=3",
          "ep=6", "ep=16", "pp=2",      "pp=3",     "pp=2,ep=2",
          "tp=2", "tp=4",  "pp=2,tp=2", "tp=2,ep=2"};
}

}  // namespace signet::testing
