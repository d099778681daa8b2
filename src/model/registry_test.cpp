#include "model/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "model/checkpoint_testing.h"
#include "model/config.h"

namespace signet::model {
namespace {

namespace fs = std::filesystem;
using testing::Has;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::Text;

constexpr const char* kName = "qwen3.6:35b-a3b";

/// A models folder and a hub cache, both empty.
class Registry : public ::testing::Test {
 protected:
  Registry() {
    paths.models = folder.path() / "models";
    paths.hub = folder.path() / "hub";
    paths.demo = folder.path() / "demo";
    fs::create_directories(*paths.models);
    fs::create_directories(*paths.hub);
  }
  fs::path Make(const fs::path& path) const {
    fs::create_directories(path);
    return path;
  }
  fs::path Snapshot(const std::string& commit) const {
    return *paths.hub / "models--Qwen--Qwen3.6-35B-A3B" / "snapshots" / commit;
  }
  void WriteMain(const std::string& text) const {
    const fs::path refs =
        Make(Snapshot("x").parent_path().parent_path() / "refs");
    std::ofstream(refs / "main") << text;
  }

  TempFolder folder;
  SearchPaths paths;
};

TEST_F(Registry, APathIsTakenAsItIs) {
  const fs::path path = Make(folder.path() / "some" / "model");
  EXPECT_EQ(Resolve(path.string(), paths).value(), path);
  EXPECT_TRUE(
      Has(Resolve("no/such/folder", paths), RejectionCode::kSourceNotFound));
}

TEST_F(Registry, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const auto found = Resolve("qwen9:1t", paths);
  EXPECT_TRUE(Has(found, RejectionCode::kSourceNotFound));
  EXPECT_THAT(Text(found), HasSubstr("qwen3.6:27b"));
}

TEST_F(Registry, ANameThatIsNowhereSaysWhereItWasSought) {
  const auto found = Resolve(kName, paths);
  EXPECT_TRUE(Has(found, RejectionCode::kSourceNotFound));
  EXPECT_THAT(Text(found), HasSubstr((*paths.models / kName).string()));
  EXPECT_THAT(Text(found), HasSubstr("models--Qwen--Qwen3.6-35B-A3B"));
  EXPECT_TRUE(Has(Resolve(kName, {}), RejectionCode::kSourceNotFound));
}

TEST_F(Registry, ModelsHoldsThreeSpellings) {
  for (const char* spelling :
       {kName, "Qwen3.6-35B-A3B", "Qwen/Qwen3.6-35B-A3B"}) {
    const fs::path path = Make(*paths.models / spelling);
    EXPECT_EQ(Resolve(kName, paths).value(), path);
    fs::remove_all(path);
  }
}

TEST_F(Registry, TwoSpellingsAreAmbiguousUnlessOneFolder) {
  const fs::path real = Make(*paths.models / "Qwen3.6-35B-A3B");
  fs::create_directory_symlink(real, *paths.models / kName);
  EXPECT_TRUE(Resolve(kName, paths).has_value());
  Make(*paths.models / "Qwen" / "Qwen3.6-35B-A3B");
  EXPECT_TRUE(Has(Resolve(kName, paths), RejectionCode::kSourceAmbiguous));
}

TEST_F(Registry, TheHubGivesTheOnlySnapshotOrTheOneOfMain) {
  Make(Snapshot("aaa"));
  EXPECT_EQ(Resolve(kName, paths).value(), Snapshot("aaa"));
  Make(Snapshot("bbb"));
  const auto two = Resolve(kName, paths);
  EXPECT_TRUE(Has(two, RejectionCode::kSourceAmbiguous));
  EXPECT_THAT(Text(two), HasSubstr(Snapshot("aaa").string()));
  EXPECT_THAT(Text(two), HasSubstr(Snapshot("bbb").string()));
  WriteMain("bbb\n");
  EXPECT_EQ(Resolve(kName, paths).value(), Snapshot("bbb"));
  // A ref to what is not there, or out of the folder, names nothing.
  for (const char* ref : {"ccc", "../snapshots/bbb", ".."}) {
    WriteMain(ref);
    EXPECT_TRUE(Has(Resolve(kName, paths), RejectionCode::kSourceAmbiguous));
  }
}

// What `plan demo` shows is what `run demo` runs.
TEST(RegistryDemo, ItsConfigIsThatOfTheModel) {
  const fs::path path = fs::path(SIGNET_SOURCE_DIR) / "models/demo/config.json";
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(text.empty()) << path;
  const RegistryEntry* demo = FindRegistered("demo");
  ASSERT_NE(demo, nullptr);
  const auto registered = ParseConfig(demo->config_json, "registry");
  const auto of_model = ParseConfig(text, path.string());
  ASSERT_TRUE(registered.has_value() && of_model.has_value());
  EXPECT_TRUE(*registered == *of_model);
}

TEST_F(Registry, ModelsComesBeforeTheHubAndTheDemoLast) {
  Make(Snapshot("aaa"));
  const fs::path path = Make(*paths.models / kName);
  EXPECT_EQ(Resolve(kName, paths).value(), path);
  EXPECT_TRUE(Has(Resolve("demo", paths), RejectionCode::kSourceNotFound));
  Make(paths.demo);
  EXPECT_EQ(Resolve("demo", paths).value(), paths.demo);
  const fs::path demo = Make(*paths.models / "demo");
  EXPECT_EQ(Resolve("demo", paths).value(), demo);
}

TEST_F(Registry, ListsEveryNameFoundOrNot) {
  Make(Snapshot("aaa"));
  const std::vector<FoundModel> models = ListModels(paths);
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[0].name, "demo");
  EXPECT_FALSE(models[0].folder.has_value());
  EXPECT_EQ(models[1].hub_name, "Qwen/Qwen3.6-35B-A3B");
  EXPECT_EQ(models[1].folder, Snapshot("aaa"));
  EXPECT_FALSE(models[2].folder.has_value());
}

TEST(RegistryConfigs, ParseToTheModelsTheyName) {
  for (const RegistryEntry& entry : model::Registry()) {
    const auto config = ParseConfig(entry.config_json, "config.json");
    ASSERT_TRUE(config.has_value()) << Text(config);
  }
  const ModelConfig moe =
      ParseConfig(FindRegistered(kName)->config_json, "c").value();
  EXPECT_EQ(moe.layers.size(), 40u);
  EXPECT_EQ(moe.rotary_dim, 64);
  EXPECT_EQ(moe.conv_channels(), 8192);
  EXPECT_EQ(moe.top_k, 8);
  const ModelConfig dense =
      ParseConfig(FindRegistered("qwen3.6:27b")->config_json, "c").value();
  EXPECT_EQ(dense.layers.size(), 64u);
  EXPECT_EQ(dense.linear_value_heads / dense.linear_key_heads, 3);
  EXPECT_EQ(dense.dense_width, 17408);
  // What layer_types states is what the interval would give.
  for (const ModelConfig& config : {moe, dense}) {
    for (size_t i = 0; i < config.layers.size(); ++i) {
      EXPECT_EQ(config.layers[i].mixer == MixerKind::kFullAttention,
                i % 4 == 3);
    }
  }
}

}  // namespace
}  // namespace signet::model
