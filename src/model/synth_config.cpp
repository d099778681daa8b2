#include "model/synth_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "model/checkpoint.h"
#include "model/registry.h"
#include "model/strict_json.h"

namespace signet::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kMaxConfigBytes = 16 << 20;

struct ConfigSource {
  std::string text;
  std::string where;
  std::optional<fs::path> folder;  // unset for an embedded text
};

Result<ConfigSource> FindConfig(const std::string& name) {
  std::error_code ignored;
  const fs::path given(name);
  const bool is_folder = fs::is_directory(given, ignored);
  if (is_folder || fs::is_regular_file(given, ignored)) {
    const fs::path path = is_folder ? given / "config.json" : given;
    SIGNET_ASSIGN_OR_RETURN(const OpenedFile file, OpenedFile::Open(path));
    SIGNET_ASSIGN_OR_RETURN(std::string text, file.ReadAll(kMaxConfigBytes));
    return ConfigSource{std::move(text), path.string(), path.parent_path()};
  }
  if (const RegistryEntry* entry = FindRegistered(name)) {
    return ConfigSource{std::string(entry->config_json), name, {}};
  }
  return Reject(RejectionCode::kSourceNotFound, name,
                "neither a config.json, nor a folder with one, nor a known "
                "name");
}

/// Edits the JSON; `text()` is the object with the language model's fields.
class Editor {
 public:
  explicit Editor(json* root) : root_(*root) {}

  bool is_nested() const {
    return root_.contains("text_config") && root_["text_config"].is_object();
  }
  json& text() { return is_nested() ? root_["text_config"] : root_; }

  void SetLayers(int64_t count) {
    json& fields = text();
    fields["num_hidden_layers"] = count;
    // Left to ParseConfig to refuse; no list of that length is made.
    if (count < 1 || count >= kLayersBound) return;
    if (const auto types = fields.find("layer_types");
        types != fields.end() && types->is_array() && !types->empty()) {
      json repeated = json::array();
      for (int64_t i = 0; i < count; ++i) {
        repeated.push_back((*types)[static_cast<size_t>(i) % types->size()]);
      }
      *types = std::move(repeated);
    }
    if (const auto dense = fields.find("mlp_only_layers");
        dense != fields.end() && dense->is_array()) {
      json kept = json::array();
      for (const json& layer : *dense) {
        if (layer.is_number_integer() && layer.get<int64_t>() < count) {
          kept.push_back(layer);
        }
      }
      *dense = std::move(kept);
    }
  }

  /// Special ids beyond the new vocabulary name nothing and are dropped.
  void SetVocab(int64_t count) {
    text()["vocab_size"] = count;
    for (json* object : {&text(), &root_}) {
      for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
        const auto id = object->find(key);
        if (id != object->end()) *id = Below(*id, count);
      }
    }
  }

  void SetNaming(SynthNaming naming) {
    if (naming == SynthNaming::kTextOnly && is_nested()) {
      json flat = root_["text_config"];
      flat["model_type"] = ClassName("_text");
      if (root_.contains("tie_word_embeddings")) {
        flat["tie_word_embeddings"] = root_["tie_word_embeddings"];
      }
      root_ = std::move(flat);
    } else if (naming == SynthNaming::kNested && !is_nested()) {
      json fields = root_;
      fields["model_type"] = ClassName("_text");
      fields.erase("architectures");
      json nested = {{"model_type", ClassName("")}};
      if (fields.contains("tie_word_embeddings")) {
        nested["tie_word_embeddings"] = fields["tie_word_embeddings"];
      }
      nested["text_config"] = std::move(fields);
      root_ = std::move(nested);
    }
    const bool is_moe = ClassName("") == "qwen3_5_moe";
    root_["architectures"] = {
        std::string(is_moe ? "Qwen3_5Moe" : "Qwen3_5") +
        (is_nested() ? "ForConditionalGeneration" : "ForCausalLM")};
  }

 private:
  static json Below(const json& ids, int64_t bound) {
    const auto fits = [&](const json& id) {
      return !id.is_number_integer() || id.get<int64_t>() < bound;
    };
    if (!ids.is_array()) return fits(ids) ? ids : json(nullptr);
    json kept = json::array();
    for (const json& id : ids) {
      if (fits(id)) kept.push_back(id);
    }
    return kept.empty() ? json(nullptr) : kept;
  }

  /// The model type without `_text`, and with `suffix`.
  std::string ClassName(std::string_view suffix) const {
    std::string name = root_["model_type"].get<std::string>();
    if (name.ends_with("_text")) name.resize(name.size() - 5);
    return name.append(suffix);
  }

  json& root_;
};

}  // namespace

Result<SynthConfig> PrepareSynthConfig(const SynthOptions& options) {
  SIGNET_ASSIGN_OR_RETURN(const ConfigSource source,
                          FindConfig(options.config));
  // Proven as it is before anything in it is touched.
  SIGNET_ASSIGN_OR_RETURN(const ModelConfig original,
                          ParseConfig(source.text, source.where));
  SynthConfig config;
  config.json = static_cast<json&&>(*ParseStrictJson(source.text));
  Editor editor(&config.json);
  editor.SetNaming(options.naming);
  if (options.layers) editor.SetLayers(*options.layers);
  if (options.vocab) editor.SetVocab(*options.vocab);
  editor.text()["dtype"] = "bfloat16";
  config.json["signet_synth_seed"] = options.seed;
  SIGNET_ASSIGN_OR_RETURN(config.model,
                          ParseConfig(config.json.dump(), source.where));
  config.prefix = editor.is_nested() ? "model.language_model." : "model.";
  const json& fields = editor.text();
  if (const auto range = fields.find("initializer_range");
      range != fields.end() && range->is_number()) {
    config.initializer_range = range->get<double>();
    if (!(config.initializer_range > 0.0 && config.initializer_range < 1e3)) {
      return Reject(RejectionCode::kConfigFieldInvalid,
                    source.where + ": initializer_range",
                    "the deviation is out of range", Shown(*range),
                    "more than 0, less than 1000");
    }
  }
  if (config.model.vocab >= original.vocab) {
    config.tokenizer_folder = source.folder;
  }
  return config;
}

}  // namespace signet::model
