// What plans refuse that only an extreme checkpoint can provoke, on headers
// alone.

#include <gtest/gtest.h>

#include "support/running_model.h"
#include "support/sparse_checkpoint.h"
#include "support/temporary_folder.h"

namespace signet::testing {
namespace {

// One full-attention layer; `heads` and `head_dim` make the KV cache wide.
std::string DenseConfig(int64_t heads, int64_t head_dim) {
  return R"({"architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text", "hidden_size": 32, "num_hidden_layers": 1,
    "layer_types": ["full_attention"], "intermediate_size": 32,
    "vocab_size": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
    "max_position_embeddings": 2147483647, "hidden_act": "silu",
    "num_attention_heads": )" +
         std::to_string(heads) + R"(, "num_key_value_heads": )" +
         std::to_string(heads) + R"(, "head_dim": )" +
         std::to_string(head_dim) + R"(,
    "linear_num_key_heads": 1, "linear_num_value_heads": 1,
    "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                        "partial_rotary_factor": 0.25}})";
}

bool PlanRefuses(int64_t heads, int64_t head_dim,
                 const plan::PlanOptions& options, RejectionCode code) {
  const std::filesystem::path folder =
      TemporaryFolder() /
      (std::to_string(heads) + "x" + std::to_string(head_dim));
  if (!std::filesystem::exists(folder)) {
    WriteSparseCheckpoint(folder, DenseConfig(heads, head_dim),
                          SparseParts::kLanguage, 1);
  }
  const auto plan =
      plan::MakeModelPlan(OpenManifest(folder), CpuMesh(), options);
  return !plan.has_value() && std::get<Rejections>(plan.error()).Has(code);
}

TEST(Admission, StateThatDoesNotFit64BitsIsRefused) {
  EXPECT_TRUE(PlanRefuses(4096, 512, {.context = 2147483647, .batch = 4096},
                          RejectionCode::kCapacityOverflow));
}

TEST(Admission, A2_HeadsWiderThanTheKernelsAreRefusedByName) {
  EXPECT_TRUE(PlanRefuses(2, 1024, {}, RejectionCode::kConfigUnsupported));
}

}  // namespace
}  // namespace signet::testing
