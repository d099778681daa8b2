// config.json, and the same bytes as a generation_config.json. What is accepted
// has sizes the rest of the engine may multiply.

#include "model/config.h"

#include <cstdint>
#include <string_view>

#include "fuzz/property.h"
#include "model/families/qwen3_5.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace signet::model;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto generation = ParseGenerationConfig(text, "g.json");
  if (generation) {
    FUZZ_REQUIRE(generation->temperature >= 0 && generation->top_k >= 0);
    FUZZ_REQUIRE(generation->top_p > 0 && generation->top_p <= 1);
  }
  const auto config = ParseConfig(text, "config.json");
  if (!config) return 0;
  FUZZ_REQUIRE(config->hidden > 0 && config->vocab > 0);
  FUZZ_REQUIRE(!config->layers.empty() && config->layers.size() < kLayersBound);
  FUZZ_REQUIRE(config->rms_eps > 0 && config->rotary_dim >= 2);
  FUZZ_REQUIRE(config->rotary_dim <= config->head_dim);
  FUZZ_REQUIRE(config->top_k <= config->num_experts);
  for (const int32_t id : config->eos_ids) {
    FUZZ_REQUIRE(id >= 0 && id < config->vocab);
  }
  if (config->layers.size() > 4) return 0;  // the rest says nothing new
  for (const DeclaredWeight& weight :
       DeclareQwen35(*config, "model.").weights) {
    FUZZ_REQUIRE(
        !weight.shape.StorageBytes(signet::tensor::DType::kF32).overflowed());
  }
  return 0;
}
