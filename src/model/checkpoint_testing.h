#pragma once
// For this room's tests: folders, hand-made safetensors files and the smallest
// checkpoints of each family. Test code only.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/checkpoint.h"
#include "model/config.h"
#include "model/families/qwen3_5.h"
#include "model/safetensors_header.h"

namespace signet::model::testing {

/// A new folder that is removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "signet-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path Write(std::string_view name,
                              std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

/// Whether a result is a refusal that has this code.
template <typename T>
bool Has(const Result<T>& result, RejectionCode code) {
  if (result.has_value()) return false;
  const auto* rejections = std::get_if<Rejections>(&result.error());
  return rejections != nullptr && rejections->Has(code);
}

/// The text of the error, for messages and for looking into it.
template <typename T>
std::string Text(const Result<T>& result) {
  return result.has_value() ? "no error" : Describe(result.error());
}

/// Length, JSON text, data: a safetensors file as it lies on disk.
inline std::string SafetensorsFile(std::string_view header,
                                   std::string_view data) {
  std::string file;
  for (int i = 0; i < 8; ++i) {
    file += static_cast<char>(header.size() >> (8 * i));
  }
  return file.append(header).append(data);
}

struct TestTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype = "BF16";
};

/// A file of zeros with these tensors, in this order.
inline std::string SafetensorsOf(const std::vector<TestTensor>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  uint64_t end_bytes = 0;
  for (const TestTensor& tensor : tensors) {
    uint64_t size = ElementBits(tensor.dtype).value() / 8;
    for (const int64_t dim : tensor.shape) size *= static_cast<uint64_t>(dim);
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {end_bytes, end_bytes + size}}};
    end_bytes += size;
  }
  std::string text = header.dump();
  while (text.size() % 8 != 0) text += ' ';
  return SafetensorsFile(text, std::string(end_bytes, '\0'));
}

/// Two layers (linear, full), hidden 8, vocabulary 11, four experts of width 6.
inline nlohmann::json TinyConfig(Family family) {
  nlohmann::json config = {
      {"model_type",
       family == Family::kQwen35Moe ? "qwen3_5_moe_text" : "qwen3_5_text"},
      {"hidden_size", 8},
      {"vocab_size", 11},
      {"num_hidden_layers", 2},
      {"layer_types", {"linear_attention", "full_attention"}},
      {"rms_norm_eps", 1e-6},
      {"num_attention_heads", 4},
      {"num_key_value_heads", 2},
      {"head_dim", 8},
      {"rope_parameters",
       {{"rope_type", "default"},
        {"rope_theta", 10000.0},
        {"partial_rotary_factor", 0.5}}},
      {"linear_num_key_heads", 2},
      {"linear_num_value_heads", 4},
      {"linear_key_head_dim", 4},
      {"linear_value_head_dim", 6},
      {"linear_conv_kernel_dim", 4},
  };
  if (family == Family::kQwen35Moe) {
    config["num_experts"] = 4;
    config["num_experts_per_tok"] = 2;
    config["moe_intermediate_size"] = 6;
    config["shared_expert_intermediate_size"] = 5;
  } else {
    config["intermediate_size"] = 12;
  }
  return config;
}

enum class TestLayout { kFused, kPerExpert };

/// The tensors that a checkpoint of `config` holds.
inline std::vector<TestTensor> TensorsOf(
    const nlohmann::json& config, std::string_view prefix = "model.",
    TestLayout layout = TestLayout::kFused) {
  const ModelConfig parsed = ParseConfig(config.dump(), "config.json").value();
  const Declaration declared = DeclareQwen35(parsed, prefix);
  std::vector<TestTensor> tensors;
  for (const DeclaredWeight& weight : declared.weights) {
    TestTensor tensor{weight.name, {}};
    for (int i = 0; i < weight.stored_shape.num_dims(); ++i) {
      tensor.shape.push_back(weight.stored_shape[i]);
    }
    tensors.push_back(std::move(tensor));
  }
  for (const DeclaredExperts& x : declared.experts) {
    if (layout == TestLayout::kFused) {
      tensors.push_back(
          {x.prefix + "gate_up_proj", {x.num_experts, 2 * x.width, x.hidden}});
      tensors.push_back(
          {x.prefix + "down_proj", {x.num_experts, x.hidden, x.width}});
      continue;
    }
    for (int64_t e = 0; e < x.num_experts; ++e) {
      const std::string one = x.prefix + std::to_string(e) + ".";
      tensors.push_back({one + "gate_proj.weight", {x.width, x.hidden}});
      tensors.push_back({one + "up_proj.weight", {x.width, x.hidden}});
      tensors.push_back({one + "down_proj.weight", {x.hidden, x.width}});
    }
  }
  return tensors;
}

/// Writes config.json and one weight file, and opens the folder.
inline Result<Checkpoint> WriteAndOpen(const TempFolder& folder,
                                       const nlohmann::json& config,
                                       const std::vector<TestTensor>& tensors) {
  folder.Write("config.json", config.dump());
  folder.Write("model.safetensors", SafetensorsOf(tensors));
  return Checkpoint::Open(folder.path());
}

}  // namespace signet::model::testing
