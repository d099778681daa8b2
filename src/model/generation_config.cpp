#include <cmath>
#include <nlohmann/json.hpp>

#include "model/config.h"
#include "model/config_fields.h"
#include "model/strict_json.h"

namespace signet::model {

Result<GenerationConfig> ParseGenerationConfig(std::string_view text,
                                               const std::string& path) {
  GenerationConfig config;
  if (text.empty()) return config;
  const auto parsed = ParseStrictJson(text);
  if (!parsed.has_value() || !parsed->is_object()) {
    return Reject(RejectionCode::kJsonInvalid, path,
                  parsed.has_value() ? "the file is not a JSON object"
                                     : parsed.error().message);
  }
  RejectionList rejections;
  FieldReader fields(*parsed, path, &rejections);
  config.do_sample = fields.BoolOr("do_sample", config.do_sample);
  if (const auto temperature = fields.Number("temperature")) {
    config.temperature = static_cast<float>(*temperature);
    if (!(config.temperature >= 0.0f) || !std::isfinite(config.temperature)) {
      fields.Invalid("temperature", "the temperature is out of range",
                     "at least 0");
    }
  }
  if (const nlohmann::json* top_k = fields.Get("top_k")) {
    if (*top_k != 0) {  // 0: no limit
      config.top_k = static_cast<int32_t>(fields.Positive("top_k"));
    }
  }
  if (const auto top_p = fields.Number("top_p")) {
    config.top_p = static_cast<float>(*top_p);
    if (!(config.top_p > 0.0f && config.top_p <= 1.0f)) {
      fields.Invalid("top_p", "the share is out of range",
                     "more than 0, at most 1");
    }
  }
  config.eos_ids = fields.Ids("eos_token_id", kDimensionBound);
  if (!rejections.empty()) return rejections.Take();
  return config;
}

}  // namespace signet::model
