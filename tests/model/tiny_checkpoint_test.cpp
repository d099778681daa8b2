#include "support/tiny_checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <system_error>

#include "model/manifest.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;
using model::Checkpoint;
using model::ExpertLayout;
using model::Manifest;

class TinyCheckpoints : public ::testing::Test {
 protected:
  TinyCheckpoints() {
    std::string name = (fs::temp_directory_path() / "signet-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
  }
  ~TinyCheckpoints() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  std::shared_ptr<const Manifest> WriteAndBuild(const std::string& name) {
    const Result<void> written = WriteTinyCheckpoint(name, root_ / name);
    EXPECT_TRUE(written.has_value());
    auto checkpoint = Checkpoint::Open(root_ / name);
    if (!checkpoint.has_value()) {
      ADD_FAILURE() << Describe(checkpoint.error());
      return nullptr;
    }
    auto manifest = model::BuildManifest(
        std::make_shared<const Checkpoint>(*std::move(checkpoint)));
    if (!manifest.has_value()) {
      ADD_FAILURE() << Describe(manifest.error());
      return nullptr;
    }
    return *std::move(manifest);
  }

  fs::path root_;
};

class TinyCheckpoint : public TinyCheckpoints,
                       public ::testing::WithParamInterface<std::string> {};

TEST_P(TinyCheckpoint, ProvesAndIsSmall) {
  const auto manifest = WriteAndBuild(GetParam());
  ASSERT_NE(manifest, nullptr);
  EXPECT_LT(manifest->language_bytes(), Bytes(2'000'000));
  EXPECT_EQ(manifest->config().layers.size(), 4u);
  bool has_linear = false;
  bool has_full = false;
  for (const model::LayerConfig& layer : manifest->config().layers) {
    has_linear |= layer.mixer == model::MixerKind::kLinearAttention;
    has_full |= layer.mixer == model::MixerKind::kFullAttention;
  }
  EXPECT_TRUE(has_linear && has_full);
  EXPECT_TRUE(manifest->checkpoint().tokenizer_file().has_value());
  // Nothing but the checkpoint was left.
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), {}), 1);
}

INSTANTIATE_TEST_SUITE_P(All, TinyCheckpoint,
                         ::testing::ValuesIn(TinyCheckpointNames()),
                         [](const auto& name) { return name.param; });

TEST_F(TinyCheckpoints, TheSetCoversWhatDiffers) {
  std::map<std::string, std::shared_ptr<const Manifest>> all;
  for (const std::string& name : TinyCheckpointNames()) {
    all[name] = WriteAndBuild(name);
    ASSERT_NE(all[name], nullptr);
  }
  const Manifest& nested = *all.at("moe_fused_nested");
  EXPECT_EQ(nested.config().model_type, "qwen3_5_moe");
  EXPECT_EQ(nested.expert_groups()[0].layout, ExpertLayout::kFused);
  EXPECT_EQ(nested.skipped().size(), 6u);
  const Manifest& single = *all.at("moe_per_expert_text");
  EXPECT_EQ(single.config().model_type, "qwen3_5_moe_text");
  EXPECT_EQ(single.expert_groups()[0].layout, ExpertLayout::kPerExpert);
  EXPECT_FALSE(single.config().tied_embeddings);
  EXPECT_GT(single.checkpoint().weight_files().size(), 1u);
  const model::ModelConfig& dense = all.at("dense_r3")->config();
  EXPECT_EQ(dense.linear_value_heads, 3 * dense.linear_key_heads);
  EXPECT_EQ(dense.num_experts, 0);
  EXPECT_EQ(all.at("moe_top1")->config().top_k, 1);
  const model::ModelConfig& awkward = all.at("moe_awkward")->config();
  EXPECT_TRUE(awkward.tied_embeddings);
  EXPECT_EQ(awkward.expert_width, 44);
  EXPECT_EQ(awkward.shared_width, 22);
  EXPECT_EQ(awkward.rotary_dim, 6);
  EXPECT_EQ(awkward.conv_taps, 3);
  EXPECT_NE(awkward.linear_key_dim, awkward.linear_value_dim);
}

}  // namespace
}  // namespace signet::testing
