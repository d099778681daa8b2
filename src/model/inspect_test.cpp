#include "model/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "model/checkpoint_testing.h"

namespace signet::model {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::shared_ptr<const Manifest> TinyManifest(
    const testing::TempFolder& folder) {
  json config = testing::TinyConfig(Family::kQwen35Moe);
  config["tie_word_embeddings"] = true;
  auto tensors = testing::TensorsOf(config);
  tensors.push_back({"mtp.fc.weight", {8, 16}});
  return BuildManifest(
             std::make_shared<const Checkpoint>(
                 testing::WriteAndOpen(folder, config, tensors).value()))
      .value();
}

TEST(Inspect, TextNamesRolesGroupsSkipsAndTotals) {
  const testing::TempFolder folder;
  const std::string text = InspectText(*TinyManifest(folder));
  EXPECT_THAT(text, HasSubstr("qwen3_5_moe_text"));
  EXPECT_THAT(text, HasSubstr("in_proj_qkv"));
  EXPECT_THAT(text, HasSubstr("[40,4]"));
  EXPECT_THAT(text, HasSubstr("alias of embed_tokens"));
  EXPECT_THAT(text, HasSubstr("layer 1"));
  EXPECT_THAT(text, HasSubstr("fused"));
  EXPECT_THAT(text, HasSubstr("mtp"));
  EXPECT_THAT(text, HasSubstr("language model: 35 tensors"));
}

TEST(Inspect, JsonHasTheDocumentedKeys) {
  const testing::TempFolder folder;
  const auto manifest = TinyManifest(folder);
  const json root = json::parse(InspectJson(*manifest));
  for (const char* key :
       {"config", "tensors", "expert_groups", "skipped", "totals"}) {
    EXPECT_TRUE(root.contains(key)) << key;
  }
  EXPECT_EQ(root["config"]["num_experts"], 4);
  EXPECT_EQ(root["tensors"].size(), manifest->weights().size());
  EXPECT_EQ(root["expert_groups"][1]["gate"]["shape"], json({6, 8}));
  EXPECT_EQ(root["skipped"][0]["rule"], "mtp");
  EXPECT_EQ(root["totals"]["skipped_bytes"], 256);
  EXPECT_EQ(root["totals"]["language_bytes"],
            manifest->language_bytes().value());
}

TEST(Inspect, EveryRoleHasItsOwnName) {
  std::set<std::string_view> names;
  for (int role = 0; role < kNumRoles; ++role) {
    names.insert(Name(static_cast<Role>(role)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kNumRoles));
  EXPECT_FALSE(names.contains(""));
}

}  // namespace
}  // namespace signet::model
