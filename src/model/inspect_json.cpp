#include <optional>
#include <string_view>
#include <utility>

#include "base/json_text.h"
#include "model/inspect.h"

namespace signet::model {
namespace {

void AppendShape(const tensor::Shape& shape, JsonText& json) {
  json.Array("shape", [&] {
    for (int i = 0; i < shape.num_dims(); ++i) json.Value(shape[i]);
  });
}

void AppendConfig(const ModelConfig& config, JsonText& json) {
  json.Field("family", Name(config.family));
  json.Field("model_type", config.model_type);
  json.Field("hidden", config.hidden);
  json.Field("vocab", config.vocab);
  json.Array("layers", [&] {
    for (const LayerConfig& layer : config.layers) {
      json.Object([&] {
        json.Field("mixer", Name(layer.mixer));
        json.Field("mlp", Name(layer.mlp));
      });
    }
  });
  json.Field("tied_embeddings", config.tied_embeddings);
  json.Field("max_position", config.max_position);
  json.Field("rms_eps", config.rms_eps);
  json.Field("num_heads", config.num_heads);
  json.Field("num_kv_heads", config.num_kv_heads);
  json.Field("head_dim", config.head_dim);
  json.Field("rotary_dim", config.rotary_dim);
  json.Field("rope_theta", config.rope_theta);
  json.Field("linear_key_heads", config.linear_key_heads);
  json.Field("linear_value_heads", config.linear_value_heads);
  json.Field("linear_key_dim", config.linear_key_dim);
  json.Field("linear_value_dim", config.linear_value_dim);
  json.Field("conv_taps", config.conv_taps);
  json.Field("dense_width", config.dense_width);
  json.Field("num_experts", config.num_experts);
  json.Field("top_k", config.top_k);
  json.Field("expert_width", config.expert_width);
  json.Field("shared_width", config.shared_width);
  json.Field("renormalise", config.renormalise);
  json.Array("eos_ids", [&] {
    for (const int32_t id : config.eos_ids) json.Value(id);
  });
}

void AppendTensor(const Manifest& manifest, const WeightEntry& weight,
                  JsonText& json) {
  std::optional<int32_t> layer;
  if (weight.layer) layer = weight.layer->value();
  std::optional<std::string_view> alias;
  if (weight.alias_of) alias = manifest.weights()[*weight.alias_of].name;
  json.Field("name", weight.name);
  json.Field("role", Name(weight.role));
  json.Field("layer", layer);
  AppendShape(weight.shape, json);
  json.Field("dtype", Name(weight.dtype));
  json.Field("bytes", weight.source.size_bytes());
  json.Field("file", weight.source.file.value());
  json.Field("begin", weight.source.begin_bytes);
  json.Field("shard", Name(weight.shard));
  json.Field("basis", Name(weight.input_basis));
  json.Field("alias_of", alias);
}

void AppendProjection(const ExpertProjection& projection, JsonText& json) {
  Bytes size;
  for (const FileRange& range : projection.sources) {
    size += Bytes(range.size_bytes());
  }
  AppendShape(projection.shape, json);
  json.Field("dtype", Name(projection.dtype));
  json.Field("basis", Name(projection.input_basis));
  json.Field("bytes", size.value());
}

void AppendGroup(const ExpertGroup& group, JsonText& json) {
  json.Field("layer", group.layer.value());
  json.Field("layout", Name(group.layout));
  json.Field("num_experts", group.num_experts);
  json.Field("top_k", group.top_k);
  json.Object("gate", [&] { AppendProjection(group.gate, json); });
  json.Object("up", [&] { AppendProjection(group.up, json); });
  json.Object("down", [&] { AppendProjection(group.down, json); });
}

void AppendTotals(const Manifest& manifest, JsonText& json) {
  Bytes skipped;
  for (const SkippedTensor& tensor : manifest.skipped()) skipped += tensor.size;
  json.Field("language_tensors", manifest.num_language_tensors());
  json.Field("language_bytes", manifest.language_bytes().value());
  json.Field("skipped_tensors", manifest.skipped().size());
  json.Field("skipped_bytes", skipped.value());
  json.Field("digest", manifest.digest().Hex());
  json.Array("files", [&] {
    for (const OpenedFile& file : manifest.checkpoint().weight_files()) {
      json.Value(file.path());
    }
  });
}

}  // namespace

std::string InspectJson(const Manifest& manifest) {
  JsonText json;
  json.Object([&] {
    json.Object("config", [&] { AppendConfig(manifest.config(), json); });
    json.Array("tensors", [&] {
      for (const WeightEntry& weight : manifest.weights()) {
        json.Object([&] { AppendTensor(manifest, weight, json); });
      }
    });
    json.Array("expert_groups", [&] {
      for (const ExpertGroup& group : manifest.expert_groups()) {
        json.Object([&] { AppendGroup(group, json); });
      }
    });
    json.Array("skipped", [&] {
      for (const SkippedTensor& tensor : manifest.skipped()) {
        json.Object([&] {
          json.Field("name", tensor.name);
          json.Field("rule", tensor.rule);
          json.Field("bytes", tensor.size.value());
        });
      }
    });
    json.Object("totals", [&] { AppendTotals(manifest, json); });
  });
  return std::move(json).Take();
}

}  // namespace signet::model
