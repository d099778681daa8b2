#include "support/sparse_checkpoint.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

namespace signet::testing {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kElementBytes = 2;

/// Lists the tensors of one config.
class Lister {
 public:
  Lister(const json& config, SparseParts parts)
      : config_(config),
        text_(config.value("text_config", config)),
        is_moe_(text_.contains("num_experts")),
        hidden_(Size("hidden_size")),
        parts_(parts) {}

  std::vector<SparseTensor> List() {
    const bool nested = parts_ == SparseParts::kLanguageVisionMtp;
    const std::string prefix = nested ? "model.language_model." : "model.";
    Add(prefix + "embed_tokens.weight", {Size("vocab_size"), hidden_});
    const json types = LayerTypes();
    for (size_t i = 0; i < types.size(); ++i) {
      const std::string layer = fmt::format("{}layers.{}.", prefix, i);
      ListLayer(layer, types[i] == "full_attention");
    }
    Add(prefix + "norm.weight", {hidden_});
    if (!text_.value("tie_word_embeddings", false)) {
      Add("lm_head.weight", {Size("vocab_size"), hidden_});
    }
    if (nested) {
      ListMtp();
      if (config_.contains("vision_config")) {
        ListVision(config_["vision_config"]);
      }
    }
    return std::move(tensors_);
  }

 private:
  int64_t Size(const char* key) const { return text_.at(key).get<int64_t>(); }

  json LayerTypes() const {
    if (text_.contains("layer_types")) return text_["layer_types"];
    json types = json::array();
    const int64_t interval = text_.value("full_attention_interval", 4);
    for (int64_t i = 1; i <= Size("num_hidden_layers"); ++i) {
      types.push_back(i % interval == 0 ? "full_attention"
                                        : "linear_attention");
    }
    return types;
  }

  void ListLayer(const std::string& layer, bool is_full) {
    Add(layer + "input_layernorm.weight", {hidden_});
    Add(layer + "post_attention_layernorm.weight", {hidden_});
    if (is_full) {
      ListAttention(layer + "self_attn.");
    } else {
      ListDeltaNet(layer + "linear_attn.");
    }
    if (is_moe_) {
      ListMoe(layer + "mlp.");
    } else {
      ListMlp(layer + "mlp.", Size("intermediate_size"));
    }
  }

  void ListAttention(const std::string& at) {
    const int64_t dim = Size("head_dim");
    const int64_t query = Size("num_attention_heads") * dim;
    const int64_t kv = Size("num_key_value_heads") * dim;
    Add(at + "q_proj.weight", {2 * query, hidden_});
    Add(at + "k_proj.weight", {kv, hidden_});
    Add(at + "v_proj.weight", {kv, hidden_});
    Add(at + "o_proj.weight", {hidden_, query});
    Add(at + "q_norm.weight", {dim});
    Add(at + "k_norm.weight", {dim});
  }

  void ListDeltaNet(const std::string& at) {
    const int64_t heads = Size("linear_num_value_heads");
    const int64_t key =
        Size("linear_num_key_heads") * Size("linear_key_head_dim");
    const int64_t value = heads * Size("linear_value_head_dim");
    const int64_t channels = 2 * key + value;
    Add(at + "in_proj_qkv.weight", {channels, hidden_});
    Add(at + "in_proj_z.weight", {value, hidden_});
    Add(at + "in_proj_b.weight", {heads, hidden_});
    Add(at + "in_proj_a.weight", {heads, hidden_});
    Add(at + "conv1d.weight", {channels, 1, Size("linear_conv_kernel_dim")});
    Add(at + "A_log", {heads});
    Add(at + "dt_bias", {heads});
    Add(at + "norm.weight", {Size("linear_value_head_dim")});
    Add(at + "out_proj.weight", {hidden_, value});
  }

  void ListMoe(const std::string& at) {
    const int64_t experts = Size("num_experts");
    const int64_t width = Size("moe_intermediate_size");
    Add(at + "gate.weight", {experts, hidden_});
    Add(at + "experts.gate_up_proj", {experts, 2 * width, hidden_});
    Add(at + "experts.down_proj", {experts, hidden_, width});
    ListMlp(at + "shared_expert.", Size("shared_expert_intermediate_size"));
    Add(at + "shared_expert_gate.weight", {1, hidden_});
  }

  void ListMlp(const std::string& at, int64_t width) {
    Add(at + "gate_proj.weight", {width, hidden_});
    Add(at + "up_proj.weight", {width, hidden_});
    Add(at + "down_proj.weight", {hidden_, width});
  }

  void ListMtp() {
    Add("mtp.fc.weight", {hidden_, 2 * hidden_});
    Add("mtp.pre_fc_norm_embedding.weight", {hidden_});
    Add("mtp.pre_fc_norm_hidden.weight", {hidden_});
    Add("mtp.norm.weight", {hidden_});
    ListLayer("mtp.layers.0.", true);
  }

  void ListVision(const json& vision) {
    const auto size = [&](const char* key) {
      return vision.at(key).get<int64_t>();
    };
    const std::string at = "model.visual.";
    const int64_t width = size("hidden_size");
    const int64_t patch = size("patch_size");
    const int64_t merge = size("spatial_merge_size");
    Add(at + "patch_embed.proj.weight",
        {width, size("in_channels"), size("temporal_patch_size"), patch,
         patch});
    Add(at + "patch_embed.proj.bias", {width});
    Add(at + "pos_embed.weight", {size("num_position_embeddings"), width});
    for (int64_t i = 0; i < size("depth"); ++i) {
      const std::string block = fmt::format("{}blocks.{}.", at, i);
      AddNormWithBias(block + "norm1", width);
      AddNormWithBias(block + "norm2", width);
      AddWithBias(block + "attn.qkv", 3 * width, width);
      AddWithBias(block + "attn.proj", width, width);
      AddWithBias(block + "mlp.linear_fc1", size("intermediate_size"), width);
      AddWithBias(block + "mlp.linear_fc2", width, size("intermediate_size"));
    }
    const int64_t merged = width * merge * merge;
    AddNormWithBias(at + "merger.norm", width);
    AddWithBias(at + "merger.linear_fc1", merged, merged);
    AddWithBias(at + "merger.linear_fc2", size("out_hidden_size"), merged);
  }

  void AddNormWithBias(const std::string& at, int64_t width) {
    Add(at + ".weight", {width});
    Add(at + ".bias", {width});
  }
  void AddWithBias(const std::string& at, int64_t rows, int64_t columns) {
    Add(at + ".weight", {rows, columns});
    Add(at + ".bias", {rows});
  }
  void Add(std::string name, std::vector<int64_t> shape) {
    tensors_.push_back({std::move(name), std::move(shape)});
  }

  const json& config_;
  json text_;
  bool is_moe_;
  int64_t hidden_;
  SparseParts parts_;
  std::vector<SparseTensor> tensors_;
};

int64_t SizeBytes(const SparseTensor& tensor) {
  int64_t size = kElementBytes;
  for (const int64_t dim : tensor.shape) size *= dim;
  return size;
}

void WriteShard(const std::filesystem::path& path,
                const std::vector<SparseTensor>& tensors) {
  ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t end_bytes = 0;
  for (const SparseTensor& tensor : tensors) {
    const int64_t begin_bytes = end_bytes;
    end_bytes += SizeBytes(tensor);
    header[tensor.name] = {{"dtype", "BF16"},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin_bytes, end_bytes}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::ofstream file(path, std::ios::binary);
  for (int i = 0; i < 8; ++i) {
    file.put(static_cast<char>(text.size() >> (8 * i)));
  }
  file << text;
  file.close();
  // Only lengthened: the file system keeps no block for what is not written.
  std::filesystem::resize_file(
      path, 8 + text.size() + static_cast<uint64_t>(end_bytes));
}

}  // namespace

std::vector<SparseTensor> SparseTensors(std::string_view config_json,
                                        SparseParts parts) {
  const json config = json::parse(config_json);
  return Lister(config, parts).List();
}

void WriteSparseCheckpoint(const std::filesystem::path& folder,
                           std::string_view config_json, SparseParts parts,
                           int num_shards) {
  const std::vector<SparseTensor> tensors = SparseTensors(config_json, parts);
  int64_t total_bytes = 0;
  for (const SparseTensor& tensor : tensors) total_bytes += SizeBytes(tensor);

  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << config_json;
  std::vector<std::vector<SparseTensor>> shards(
      static_cast<size_t>(num_shards));
  ordered_json weight_map;
  int64_t placed_bytes = 0;
  const auto name_of = [&](int64_t shard) {
    return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1,
                       num_shards);
  };
  for (const SparseTensor& tensor : tensors) {
    const int64_t shard = placed_bytes * num_shards / total_bytes;
    placed_bytes += SizeBytes(tensor);
    shards[static_cast<size_t>(shard)].push_back(tensor);
    weight_map[tensor.name] = name_of(shard);
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].empty()) continue;
    WriteShard(folder / name_of(static_cast<int64_t>(i)), shards[i]);
  }
  // The published index gives the size as a float.
  const ordered_json index = {
      {"metadata", {{"total_size", static_cast<double>(total_bytes)}}},
      {"weight_map", weight_map}};
  std::ofstream(folder / "model.safetensors.index.json") << index.dump(2);
}

}  // namespace signet::testing
