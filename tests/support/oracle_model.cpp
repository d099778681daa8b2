#include "tests/support/oracle_model.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

namespace signet::testing {
namespace {

using nlohmann::json;

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "oracle: %s\n", message.c_str());
  std::abort();
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) Fail("cannot open " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

json ParseJson(std::string_view text, const std::string& path) {
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) Fail(path + ": not JSON");
  return value;
}

// The value of a key, or the default where it is absent or null.
template <typename T>
T Get(const json& object, const char* key, T otherwise) {
  if (!object.contains(key) || object.at(key).is_null()) return otherwise;
  return object.at(key).get<T>();
}

double HalfToDouble(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

template <typename T>
T Load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

double ElementAt(const char* bytes, size_t i, const std::string& dtype) {
  if (dtype == "F32") return Load<float>(bytes + 4 * i);
  if (dtype == "I32") return Load<int32_t>(bytes + 4 * i);
  if (dtype == "F16") return HalfToDouble(Load<uint16_t>(bytes + 2 * i));
  const uint32_t high = Load<uint16_t>(bytes + 2 * i);  // BF16
  return std::bit_cast<float>(high << 16);
}

OracleTensor ReadTensor(const json& entry, std::string_view payload,
                        const std::string& name) {
  OracleTensor tensor;
  tensor.shape = entry.at("shape").get<std::vector<int64_t>>();
  size_t count = 1;
  for (const int64_t dim : tensor.shape) count *= static_cast<size_t>(dim);
  const auto dtype = entry.at("dtype").get<std::string>();
  const bool is_wide = dtype == "F32" || dtype == "I32";
  if (!is_wide && dtype != "BF16" && dtype != "F16") {
    Fail(name + " has dtype " + dtype);
  }
  const auto offsets = entry.at("data_offsets").get<std::vector<size_t>>();
  if (offsets.size() != 2 || offsets[1] > payload.size() ||
      offsets[1] - offsets[0] != count * (is_wide ? 4 : 2)) {
    Fail(name + " has a wrong byte range");
  }
  const char* bytes = payload.data() + offsets[0];
  tensor.data.resize(count);
  for (size_t i = 0; i < count; ++i) {
    tensor.data[i] = ElementAt(bytes, i, dtype);
  }
  return tensor;
}

// The name without prefix, or nothing for vision and MTP.
std::optional<std::string> LanguageName(const std::string& name) {
  for (const char* skipped : {"model.visual.", "visual.", "mtp."}) {
    if (name.starts_with(skipped)) return std::nullopt;
  }
  if (name == "lm_head.weight") return name;
  for (const std::string prefix : {"model.language_model.", "model."}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  Fail("unknown tensor " + name);
}

// Appends rows of `from` to `to`; both may be empty at first.
void Append(std::vector<double>& to, const std::vector<double>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Turns experts.{e}.{gate,up,down}_proj.weight of a layer into the fused pair.
void FuseExperts(OracleModel& model, int64_t layer) {
  const std::string prefix =
      "layers." + std::to_string(layer) + ".mlp.experts.";
  if (model.tensors.contains(prefix + "gate_up_proj")) return;
  OracleTensor gate_up;
  OracleTensor down;
  for (int64_t e = 0; e < model.config.experts; ++e) {
    std::map<std::string, OracleTensor> part;
    for (const std::string kind : {"gate", "up", "down"}) {
      const std::string name =
          prefix + std::to_string(e) + "." + kind + "_proj.weight";
      auto node = model.tensors.extract(name);
      if (node.empty()) Fail("no tensor " + name);
      part[kind] = std::move(node.mapped());
    }
    Append(gate_up.data, part["gate"].data);
    Append(gate_up.data, part["up"].data);
    Append(down.data, part["down"].data);
    const std::vector<int64_t>& shape = part["gate"].shape;  // [I, H]
    gate_up.shape = {model.config.experts, 2 * shape[0], shape[1]};
    down.shape = {model.config.experts, shape[1], shape[0]};
  }
  model.tensors[prefix + "gate_up_proj"] = std::move(gate_up);
  model.tensors[prefix + "down_proj"] = std::move(down);
}

std::vector<bool> FullAttentionLayers(const json& text) {
  std::vector<bool> result;
  if (text.contains("layer_types") && !text.at("layer_types").is_null()) {
    for (const json& kind : text.at("layer_types")) {
      result.push_back(kind.get<std::string>() == "full_attention");
    }
    return result;
  }
  const int interval = Get(text, "full_attention_interval", 4);
  const int layers = text.at("num_hidden_layers").get<int>();
  for (int i = 0; i < layers; ++i) result.push_back((i + 1) % interval == 0);
  return result;
}

OracleConfig ReadConfig(const std::string& path) {
  const json top = ParseJson(ReadFile(path), path);
  const json text = top.contains("text_config") ? top.at("text_config") : top;
  const json rope =
      text.contains("rope_parameters") && !text.at("rope_parameters").is_null()
          ? text.at("rope_parameters")
          : text;
  const auto number = [&](const char* key) {
    return text.at(key).get<int64_t>();
  };
  const auto model_type = Get<std::string>(
      text, "model_type", Get<std::string>(top, "model_type", ""));
  if (!model_type.starts_with("qwen3_5")) Fail("model_type " + model_type);

  OracleConfig config;
  config.hidden = number("hidden_size");
  config.vocabulary = number("vocab_size");
  config.epsilon = Get(text, "rms_norm_eps", 1e-6);
  config.tied_embeddings =
      Get(top, "tie_word_embeddings", Get(text, "tie_word_embeddings", false));
  config.is_full_attention = FullAttentionLayers(text);
  config.attention_heads = number("num_attention_heads");
  config.kv_heads = number("num_key_value_heads");
  config.head_dim = Get<int64_t>(text, "head_dim", 256);
  const double factor = Get(rope, "partial_rotary_factor",
                            Get(text, "partial_rotary_factor", 0.25));
  config.rotary_dims =
      static_cast<int64_t>(static_cast<double>(config.head_dim) * factor);
  config.rope_theta = rope.at("rope_theta").get<double>();
  config.linear_key_heads = number("linear_num_key_heads");
  config.linear_value_heads = number("linear_num_value_heads");
  config.linear_key_dim = number("linear_key_head_dim");
  config.linear_value_dim = number("linear_value_head_dim");
  config.conv_width = number("linear_conv_kernel_dim");
  config.is_moe = model_type.starts_with("qwen3_5_moe");
  if (config.is_moe) {
    config.experts = number("num_experts");
    config.experts_per_token = number("num_experts_per_tok");
  }
  return config;
}

}  // namespace

OracleTensorFile ReadOracleTensorFile(const std::string& path) {
  const std::string bytes = ReadFile(path);
  if (bytes.size() < 8) Fail(path + " is truncated");
  const auto header_bytes = Load<uint64_t>(bytes.data());
  if (header_bytes > bytes.size() - 8) Fail(path + " is truncated");
  const std::string_view all = bytes;
  const json header = ParseJson(all.substr(8, header_bytes), path);
  const std::string_view payload = all.substr(8 + header_bytes);
  OracleTensorFile file;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      file.metadata = entry.get<std::map<std::string, std::string>>();
    } else {
      file.tensors[name] = ReadTensor(entry, payload, path + ": " + name);
    }
  }
  return file;
}

OracleModel LoadOracleModel(const std::string& folder) {
  OracleModel model;
  model.config = ReadConfig(folder + "/config.json");
  std::set<std::string> shards = {"model.safetensors"};
  const std::string index = folder + "/model.safetensors.index.json";
  if (std::ifstream(index).good()) {
    shards.clear();
    const json content = ParseJson(ReadFile(index), index);
    for (const json& shard : content.at("weight_map")) {
      shards.insert(shard.get<std::string>());
    }
  }
  for (const std::string& shard : shards) {
    OracleTensorFile file = ReadOracleTensorFile(folder + "/" + shard);
    for (auto& [name, tensor] : file.tensors) {
      const std::optional<std::string> language = LanguageName(name);
      if (language) model.tensors[*language] = std::move(tensor);
    }
  }
  if (model.config.is_moe) {
    for (int64_t i = 0; i < model.config.layers(); ++i) FuseExperts(model, i);
  }
  return model;
}

}  // namespace signet::testing
