// The published checkpoints, by their headers: names, counts and byte sums as
// they are on the hub.

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "model/manifest.h"
#include "model/registry.h"
#include "support/sparse_checkpoint.h"

namespace signet::model {
namespace {

namespace fs = std::filesystem;
using signet::testing::SparseParts;

class FlagshipHeaders : public ::testing::Test {
 protected:
  FlagshipHeaders() {
    std::string name = (fs::temp_directory_path() / "signet-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~FlagshipHeaders() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  std::shared_ptr<const Manifest> Build(std::string_view registry_name,
                                        SparseParts parts, int num_shards) {
    signet::testing::WriteSparseCheckpoint(
        folder_, FindRegistered(registry_name)->config_json, parts, num_shards);
    const auto start = std::chrono::steady_clock::now();
    Result<Checkpoint> checkpoint = Checkpoint::Open(folder_);
    EXPECT_TRUE(checkpoint.has_value());
    if (!checkpoint.has_value()) {
      ADD_FAILURE() << Describe(checkpoint.error());
      return nullptr;
    }
    const auto manifest = BuildManifest(
        std::make_shared<const Checkpoint>(*std::move(checkpoint)));
    if (!manifest.has_value()) {
      ADD_FAILURE() << Describe(manifest.error());
      return nullptr;
    }
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - start;
    std::cout << registry_name << ": opened and proven in " << elapsed.count()
              << " ms\n";
    return *manifest;
  }

  /// (count, bytes) by rule.
  static std::map<std::string, std::pair<int, uint64_t>> Skipped(
      const Manifest& manifest) {
    std::map<std::string, std::pair<int, uint64_t>> sums;
    for (const SkippedTensor& tensor : manifest.skipped()) {
      sums[tensor.rule].first += 1;
      sums[tensor.rule].second += tensor.size.value();
    }
    return sums;
  }

  fs::path folder_;
};

TEST_F(FlagshipHeaders, W1_Qwen36MoeHas693LanguageTensors) {
  const auto manifest =
      Build("qwen3.6:35b-a3b", SparseParts::kLanguageVisionMtp, 26);
  ASSERT_NE(manifest, nullptr);
  EXPECT_EQ(manifest->checkpoint().tensors().size(), 1045u);
  EXPECT_EQ(manifest->num_language_tensors(), 693);
  EXPECT_EQ(manifest->language_bytes(), Bytes(69'321'221'376));
  const auto skipped = Skipped(*manifest);
  EXPECT_EQ(skipped.at("vision"), std::pair(333, uint64_t{893'142'496}));
  EXPECT_EQ(skipped.at("mtp"), std::pair(19, uint64_t{1'689'281'536}));
  EXPECT_EQ(manifest->expert_groups().size(), 40u);
}

TEST_F(FlagshipHeaders, W1_Qwen36DenseHas851LanguageTensors) {
  const auto manifest =
      Build("qwen3.6:27b", SparseParts::kLanguageVisionMtp, 15);
  ASSERT_NE(manifest, nullptr);
  EXPECT_EQ(manifest->checkpoint().tensors().size(), 1199u);
  EXPECT_EQ(manifest->num_language_tensors(), 851);
  EXPECT_EQ(manifest->language_bytes(), Bytes(53'791'996'928));
  const auto skipped = Skipped(*manifest);
  EXPECT_EQ(skipped.at("vision"), std::pair(333, uint64_t{921'460'192}));
  EXPECT_EQ(skipped.at("mtp"), std::pair(15, uint64_t{849'398'784}));
  EXPECT_TRUE(manifest->expert_groups().empty());
}

TEST_F(FlagshipHeaders, TheTextOnlyClassHoldsTheSameBytes) {
  const auto manifest = Build("qwen3.6:35b-a3b", SparseParts::kLanguage, 3);
  ASSERT_NE(manifest, nullptr);
  EXPECT_EQ(manifest->num_language_tensors(), 693);
  EXPECT_EQ(manifest->language_bytes(), Bytes(69'321'221'376));
  EXPECT_TRUE(manifest->skipped().empty());
}

// A tensor's data is where the header says, up to the last byte of the file.
TEST_F(FlagshipHeaders, W2_TheLastExpertEndsWithItsTensor) {
  const auto manifest = Build("qwen3.6:35b-a3b", SparseParts::kLanguage, 26);
  ASSERT_NE(manifest, nullptr);
  for (const ExpertGroup& group : manifest->expert_groups()) {
    const std::string at =
        "model.layers." + std::to_string(group.layer.value()) + ".mlp.experts.";
    const HeaderTensor* fused =
        manifest->checkpoint().Find(at + "gate_up_proj");
    EXPECT_EQ(group.up.sources[ExpertId(255)].end_bytes, fused->end_bytes);
    EXPECT_EQ(group.gate.sources[ExpertId(0)].begin_bytes, fused->begin_bytes);
    EXPECT_EQ(group.gate.sources[ExpertId(0)].size_bytes(),
              uint64_t{512 * 2048 * 2});
  }
}

}  // namespace
}  // namespace signet::model
