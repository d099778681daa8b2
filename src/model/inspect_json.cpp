#include <nlohmann/json.hpp>
#include <vector>

#include "model/inspect.h"

namespace signet::model {
namespace {

using nlohmann::ordered_json;

ordered_json ShapeJson(const tensor::Shape& shape) {
  ordered_json dims = ordered_json::array();
  for (int i = 0; i < shape.num_dims(); ++i) dims.push_back(shape[i]);
  return dims;
}

ordered_json LayerJson(std::optional<LayerId> layer) {
  if (!layer) return nullptr;
  return layer->value();
}

ordered_json ConfigJson(const ModelConfig& config) {
  ordered_json layers = ordered_json::array();
  for (const LayerConfig& layer : config.layers) {
    layers.push_back({{"mixer", Name(layer.mixer)}, {"mlp", Name(layer.mlp)}});
  }
  return {
      {"family", Name(config.family)},
      {"model_type", config.model_type},
      {"hidden", config.hidden},
      {"vocab", config.vocab},
      {"layers", layers},
      {"tied_embeddings", config.tied_embeddings},
      {"max_position", config.max_position},
      {"rms_eps", config.rms_eps},
      {"num_heads", config.num_heads},
      {"num_kv_heads", config.num_kv_heads},
      {"head_dim", config.head_dim},
      {"rotary_dim", config.rotary_dim},
      {"rope_theta", config.rope_theta},
      {"linear_key_heads", config.linear_key_heads},
      {"linear_value_heads", config.linear_value_heads},
      {"linear_key_dim", config.linear_key_dim},
      {"linear_value_dim", config.linear_value_dim},
      {"conv_taps", config.conv_taps},
      {"dense_width", config.dense_width},
      {"num_experts", config.num_experts},
      {"top_k", config.top_k},
      {"expert_width", config.expert_width},
      {"shared_width", config.shared_width},
      {"renormalise", config.renormalise},
      {"eos_ids", config.eos_ids},
  };
}

ordered_json TensorJson(const Manifest& manifest, const WeightEntry& weight) {
  ordered_json alias = nullptr;
  if (weight.alias_of) alias = manifest.weights()[*weight.alias_of].name;
  return {
      {"name", weight.name},
      {"role", Name(weight.role)},
      {"layer", LayerJson(weight.layer)},
      {"shape", ShapeJson(weight.shape)},
      {"dtype", Name(weight.dtype)},
      {"bytes", weight.source.size_bytes()},
      {"file", weight.source.file.value()},
      {"begin", weight.source.begin_bytes},
      {"shard", Name(weight.shard)},
      {"basis", Name(weight.input_basis)},
      {"alias_of", alias},
  };
}

ordered_json ProjectionJson(const ExpertProjection& projection) {
  Bytes size;
  for (const FileRange& range : projection.sources) {
    size += Bytes(range.size_bytes());
  }
  return {{"shape", ShapeJson(projection.shape)},
          {"dtype", Name(projection.dtype)},
          {"basis", Name(projection.input_basis)},
          {"bytes", size.value()}};
}

ordered_json GroupJson(const ExpertGroup& group) {
  return {
      {"layer", group.layer.value()},       {"layout", Name(group.layout)},
      {"num_experts", group.num_experts},   {"top_k", group.top_k},
      {"gate", ProjectionJson(group.gate)}, {"up", ProjectionJson(group.up)},
      {"down", ProjectionJson(group.down)},
  };
}

}  // namespace

std::string InspectJson(const Manifest& manifest) {
  ordered_json root = {{"config", ConfigJson(manifest.config())}};
  ordered_json& tensors = root["tensors"] = ordered_json::array();
  for (const WeightEntry& weight : manifest.weights()) {
    tensors.push_back(TensorJson(manifest, weight));
  }
  ordered_json& groups = root["expert_groups"] = ordered_json::array();
  for (const ExpertGroup& group : manifest.expert_groups()) {
    groups.push_back(GroupJson(group));
  }
  Bytes skipped_size;
  ordered_json& skipped = root["skipped"] = ordered_json::array();
  for (const SkippedTensor& tensor : manifest.skipped()) {
    skipped.push_back({{"name", tensor.name},
                       {"rule", tensor.rule},
                       {"bytes", tensor.size.value()}});
    skipped_size += tensor.size;
  }
  ordered_json files = ordered_json::array();
  for (const OpenedFile& file : manifest.checkpoint().weight_files()) {
    files.push_back(file.path());
  }
  root["totals"] = {
      {"language_tensors", manifest.num_language_tensors()},
      {"language_bytes", manifest.language_bytes().value()},
      {"skipped_tensors", manifest.skipped().size()},
      {"skipped_bytes", skipped_size.value()},
      {"digest", manifest.digest().Hex()},
      {"files", files},
  };
  // A path may be any bytes.
  return root.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace signet::model
