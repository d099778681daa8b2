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

/// Edits a proven config; `text()` is the object with the language model's
/// fields. What ParseConfig does not read may be any JSON.
class Editor {
 public:
  explicit Editor(JsonTree* root) : root_(*root) {}

  bool is_nested() const {
    return root_.contains("text_config") && root_["text_config"].is_object();
  }
  json& text() { return is_nested() ? root_["text_config"] : root_; }

  void SetLayers(int64_t count) {
    json& fields = text();
    JsonTree::Replace(fields["num_hidden_layers"], count);
    // Left to ParseConfig to refuse; no list of that length is made.
    if (count < 1 || count >= kLayersBound) return;
    if (json::array_t* types = ListIn(fields, "layer_types");
        types != nullptr && !types->empty()) {
      const size_t wanted = static_cast<size_t>(count);
      const size_t period = types->size();
      if (wanted < period) types->resize(wanted);
      for (size_t i = period; i < wanted; ++i) {
        types->push_back((*types)[i % period]);
      }
    }
    if (json::array_t* dense = ListIn(fields, "mlp_only_layers")) {
      const auto is_layer = [&](const json& layer) {
        return layer.is_number_integer() && layer.get<int64_t>() < count;
      };
      for (json& layer : *dense) {
        if (!is_layer(layer)) JsonTree::Replace(layer, nullptr);
      }
      std::erase(*dense, json(nullptr));
    }
  }

  /// Special ids beyond the new vocabulary name nothing and are dropped.
  void SetVocab(int64_t count) {
    JsonTree::Replace(text()["vocab_size"], count);
    for (json* object : {&text(), static_cast<json*>(&root_)}) {
      for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
        const auto ids = object->find(key);
        if (ids != object->end()) DropFrom(count, *ids);
      }
    }
  }

  void SetNaming(SynthNaming naming) {
    if (naming == SynthNaming::kTextOnly && is_nested()) {
      JsonTree flat(std::move(root_["text_config"]));
      JsonTree::Replace(flat["model_type"], ClassName("_text"));
      CopyTie(root_, flat);
      root_ = std::move(flat);
    } else if (naming == SynthNaming::kNested && !is_nested()) {
      JsonTree nested(json::object());
      JsonTree::Replace(nested["model_type"], ClassName(""));
      CopyTie(root_, nested);
      JsonTree::Replace(root_["model_type"], ClassName("_text"));
      JsonTree::Replace(root_["architectures"], nullptr);
      root_.erase("architectures");
      nested["text_config"] = static_cast<json&&>(root_);
      root_ = std::move(nested);
    }
    const bool is_moe = ClassName("") == "qwen3_5_moe";
    json& names = root_["architectures"];
    JsonTree::Replace(names, nullptr);
    names = json::array();
    names.push_back(std::string(is_moe ? "Qwen3_5Moe" : "Qwen3_5") +
                    (is_nested() ? "ForConditionalGeneration" : "ForCausalLM"));
  }

 private:
  static json::array_t* ListIn(json& fields, const char* key) {
    const auto place = fields.find(key);
    if (place == fields.end()) return nullptr;
    return place->get_ptr<json::array_t*>();
  }

  // Ids from `bound` on go; where none is left, null stays.
  static void DropFrom(int64_t bound, json& ids) {
    const auto is_beyond = [&](const json& id) {
      return id.is_number_integer() && id.get<int64_t>() >= bound;
    };
    json::array_t* list = ids.get_ptr<json::array_t*>();
    if (list != nullptr) std::erase_if(*list, is_beyond);
    if (list != nullptr ? list->empty() : is_beyond(ids)) ids = nullptr;
  }

  // Both are truth values or null.
  static void CopyTie(const json& from, json& to) {
    constexpr const char* kKey = "tie_word_embeddings";
    const auto tie = from.find(kKey);
    if (tie == from.end()) return;
    to[kKey] = *tie;
  }

  /// The model type without `_text`, and with `suffix`.
  std::string ClassName(std::string_view suffix) const {
    std::string name = root_["model_type"].get<std::string>();
    if (name.ends_with("_text")) name.resize(name.size() - 5);
    return name.append(suffix);
  }

  JsonTree& root_;
};

}  // namespace

Result<SynthConfig> PrepareSynthConfig(const SynthOptions& options) {
  SIGNET_ASSIGN_OR_RETURN(const ConfigSource source,
                          FindConfig(options.config));
  // Proven as it is before anything in it is touched.
  SIGNET_ASSIGN_OR_RETURN(const ModelConfig original,
                          ParseConfig(source.text, source.where));
  SynthConfig config;
  config.json = *ParseStrictJson(source.text);
  Editor editor(&config.json);
  editor.SetNaming(options.naming);
  if (options.layers) editor.SetLayers(*options.layers);
  if (options.vocab) editor.SetVocab(*options.vocab);
  JsonTree::Replace(editor.text()["dtype"], "bfloat16");
  JsonTree::Replace(config.json["signet_synth_seed"], options.seed);
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
