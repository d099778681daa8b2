#include "model/synth_tensors.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/json_text.h"
#include "base/json_tree.h"
#include "model/families/qwen3_5.h"

namespace signet::model {
namespace {

ValueRecipe Normal(double mean, double deviation) {
  return {Spread::kGaussian, mean, deviation};
}

ValueRecipe RecipeOf(Role role, const SynthConfig& config) {
  switch (role) {
    case Role::kEmbedding:
      // A tied table is the output layer too: with deviation 1 each token
      // would predict itself with certainty.
      return Normal(
          0.0, config.model.tied_embeddings ? config.initializer_range : 1.0);
    case Role::kFinalNorm:
    case Role::kInputNorm:
    case Role::kPostNorm:
    case Role::kQNorm:
    case Role::kKNorm:
      return Normal(0.0, 0.2);
    case Role::kLinearNorm:
      return Normal(1.0, 0.2);
    case Role::kConv:
      return Normal(0.0, 0.5);
    case Role::kALog:
      return {Spread::kLogUniform, 0.01, 15.99};
    case Role::kDtBias:
      return {Spread::kHalfBelow, 1.0, 4.0};
    case Role::kRouter:
    case Role::kSharedRouter:
      return Normal(0.0,
                    2.0 / std::sqrt(static_cast<double>(config.model.hidden)));
    case Role::kLmHead:
    case Role::kQProj:
    case Role::kKProj:
    case Role::kVProj:
    case Role::kOProj:
    case Role::kInProjQkv:
    case Role::kInProjZ:
    case Role::kInProjB:
    case Role::kInProjA:
    case Role::kOutProj:
    case Role::kSharedGate:
    case Role::kSharedUp:
    case Role::kSharedDown:
    case Role::kMlpGate:
    case Role::kMlpUp:
    case Role::kMlpDown:
      return Normal(0.0, config.initializer_range);
  }
  return Normal(0.0, config.initializer_range);
}

class Lister {
 public:
  Lister(const SynthConfig& config, const SynthOptions& options)
      : config_(config), options_(options) {}

  std::vector<SynthTensor> List() {
    const Declaration declared = DeclareQwen35(config_.model, config_.prefix);
    size_t next_experts = 0;
    for (const DeclaredWeight& weight : declared.weights) {
      std::vector<int64_t> shape;
      for (int i = 0; i < weight.stored_shape.num_dims(); ++i) {
        shape.push_back(weight.stored_shape[i]);
      }
      Add(weight.name, std::move(shape), RecipeOf(weight.role, config_));
      if (weight.role == Role::kRouter) {
        AddExperts(declared.experts[next_experts++]);
      }
    }
    if (options_.extras == SynthExtras::kVisionAndMtp) AddExtras();
    return std::move(tensors_);
  }

 private:
  void AddExperts(const DeclaredExperts& x) {
    const ValueRecipe recipe = Normal(0.0, config_.initializer_range);
    const std::string gate_up = x.prefix + "gate_up_proj";
    const std::string down = x.prefix + "down_proj";
    if (options_.experts == SynthExperts::kFused) {
      Add(gate_up, {x.num_experts, 2 * x.width, x.hidden}, recipe);
      Add(down, {x.num_experts, x.hidden, x.width}, recipe);
      return;
    }
    const uint64_t size = static_cast<uint64_t>(x.width * x.hidden);
    for (int64_t e = 0; e < x.num_experts; ++e) {
      const auto add = [&](std::string_view stem, std::vector<int64_t> shape,
                           const std::string& fused, uint64_t first) {
        Add(fmt::format("{}{}.{}.weight", x.prefix, e, stem), std::move(shape),
            recipe);
        tensors_.back().stream_name = StreamName(fused);
        tensors_.back().first_index = first;
      };
      const uint64_t expert = static_cast<uint64_t>(e);
      add("gate_proj", {x.width, x.hidden}, gate_up, 2 * expert * size);
      add("up_proj", {x.width, x.hidden}, gate_up, (2 * expert + 1) * size);
      add("down_proj", {x.hidden, x.width}, down, expert * size);
    }
  }

  void AddExtras() {
    const ValueRecipe recipe = Normal(0.0, config_.initializer_range);
    Add("model.visual.patch_embed.proj.bias", {16}, recipe);
    Add("model.visual.blocks.0.attn.qkv.weight", {12, 4}, recipe);
    Add("model.visual.merger.norm.weight", {4}, recipe);
    Add("mtp.fc.weight", {config_.model.hidden, 2 * config_.model.hidden},
        recipe);
    Add("mtp.norm.weight", {config_.model.hidden}, recipe);
    Add("mtp.layers.0.input_layernorm.weight", {config_.model.hidden}, recipe);
  }

  std::string StreamName(const std::string& name) const {
    return name.starts_with(config_.prefix) ? name.substr(config_.prefix.size())
                                            : name;
  }

  void Add(std::string name, std::vector<int64_t> shape, ValueRecipe recipe) {
    std::string stream_name = StreamName(name);
    tensors_.push_back(
        {std::move(name), std::move(shape), std::move(stream_name), 0, recipe});
  }

  const SynthConfig& config_;
  const SynthOptions& options_;
  std::vector<SynthTensor> tensors_;
};

std::string HeadOf(const std::vector<SynthTensor>& tensors) {
  JsonText json;
  json.Object([&] {
    json.Object("__metadata__", [&] { json.Field("format", "pt"); });
    uint64_t end_bytes = 0;
    for (const SynthTensor& tensor : tensors) {
      const uint64_t begin_bytes = end_bytes;
      end_bytes += tensor.size_bytes();
      json.Object(tensor.name, [&] {
        json.Field("dtype", "BF16");
        json.Array("shape", [&] {
          for (const int64_t dim : tensor.shape) json.Value(dim);
        });
        json.Array("data_offsets", [&] {
          json.Value(begin_bytes);
          json.Value(end_bytes);
        });
      });
    }
  });
  std::string text = std::move(json).Take();
  // A head of a multiple of 8 bytes keeps what follows aligned.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string head;
  for (int i = 0; i < 8; ++i) {
    head += static_cast<char>(text.size() >> (8 * i));
  }
  return head + text;
}

}  // namespace

uint64_t SynthTensor::num_elements() const {
  uint64_t count = 1;
  for (const int64_t dim : shape) count *= static_cast<uint64_t>(dim);
  return count;
}

std::vector<SynthTensor> SynthTensors(const SynthConfig& config,
                                      const SynthOptions& options) {
  return Lister(config, options).List();
}

std::vector<SynthShard> MakeShards(std::vector<SynthTensor> tensors,
                                   uint64_t shard_bytes) {
  std::vector<SynthShard> shards;
  for (SynthTensor& tensor : tensors) {
    const uint64_t size_bytes = tensor.size_bytes();
    if (shards.empty() ||
        (shards.back().data_bytes > 0 &&
         shards.back().data_bytes + size_bytes > shard_bytes)) {
      shards.emplace_back();
    }
    shards.back().data_bytes += size_bytes;
    shards.back().tensors.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file_name =
        fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    shards[i].head = HeadOf(shards[i].tensors);
  }
  return shards;
}

std::string IndexText(const std::vector<SynthShard>& shards) {
  // A tree, for names in order and lines to read.
  JsonTree index(nlohmann::json::object());
  nlohmann::json& metadata = index["metadata"] = nlohmann::json::object();
  nlohmann::json& weight_map = index["weight_map"] = nlohmann::json::object();
  uint64_t total_bytes = 0;
  for (const SynthShard& shard : shards) {
    total_bytes += shard.data_bytes;
    for (const SynthTensor& tensor : shard.tensors) {
      weight_map[tensor.name] = shard.file_name;
    }
  }
  metadata["total_size"] = total_bytes;
  return index.dump(2) + "\n";
}

}  // namespace signet::model
