#include "model/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "model/checkpoint_testing.h"

namespace signet::model {
namespace {

namespace fs = std::filesystem;
using testing::Has;
using ::testing::HasSubstr;
using testing::SafetensorsOf;
using testing::TempFolder;
using testing::Text;

constexpr const char* kIndex = "model.safetensors.index.json";

/// A folder with an empty config and two shards, `a` in the first and `b` in
/// the second.
class ShardedFolder : public TempFolder {
 public:
  ShardedFolder() {
    Write("config.json", "{}");
    Write("one.safetensors", SafetensorsOf({{"a", {2}}}));
    Write("two.safetensors", SafetensorsOf({{"b", {3}}}));
  }
  void WriteMap(const std::string& weight_map) const {
    Write(kIndex, R"({"metadata":{"total_size":10.0},"weight_map":)" +
                      weight_map + "}");
  }
  Result<Checkpoint> OpenWith(const std::string& weight_map) const {
    WriteMap(weight_map);
    return Checkpoint::Open(path());
  }
};

constexpr const char* kGoodMap =
    R"({"a":"one.safetensors","b":"two.safetensors"})";

TEST(Checkpoint, OpensShardsWithAFloatTotalSize) {
  const ShardedFolder folder;
  const auto checkpoint = folder.OpenWith(kGoodMap);
  ASSERT_TRUE(checkpoint.has_value()) << Text(checkpoint);
  EXPECT_EQ(checkpoint->weight_files().size(), 2u);
  ASSERT_EQ(checkpoint->tensors().size(), 2u);
  const HeaderTensor* b = checkpoint->Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(checkpoint->weight_files()[b->file].path(),
            (folder.path() / "two.safetensors").string());
  EXPECT_EQ(checkpoint->Find("c"), nullptr);
}

TEST(Checkpoint, OpensASingleFile) {
  const TempFolder folder;
  folder.Write("config.json", R"({"x":1})");
  folder.Write("model.safetensors", SafetensorsOf({{"b", {1}}, {"a", {1}}}));
  folder.Write("generation_config.json", "{}");
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.has_value()) << Text(checkpoint);
  EXPECT_EQ(checkpoint->config_json(), R"({"x":1})");
  EXPECT_EQ(checkpoint->generation_config_json(), "{}");
  EXPECT_FALSE(checkpoint->tokenizer_file().has_value());
  EXPECT_FALSE(checkpoint->has_chat_template());
  ASSERT_EQ(checkpoint->tensors().size(), 2u);
  EXPECT_EQ(checkpoint->tensors()[0].name, "a");
}

TEST(Checkpoint, FindsAChatTemplateInEitherPlace) {
  const ShardedFolder folder;
  folder.Write("tokenizer_config.json", R"({"chat_template":null})");
  EXPECT_FALSE(folder.OpenWith(kGoodMap)->has_chat_template());
  folder.Write("tokenizer_config.json", R"({"chat_template":"{{x}}"})");
  EXPECT_TRUE(folder.OpenWith(kGoodMap)->has_chat_template());
  folder.Write("tokenizer_config.json", "{}");
  folder.Write("chat_template.jinja", "{{x}}");
  EXPECT_TRUE(folder.OpenWith(kGoodMap)->has_chat_template());
}

TEST(Checkpoint, A1_ReportsEverythingThatIsWrongWithAFolder) {
  EXPECT_TRUE(Has(Checkpoint::Open("/nonexistent/folder"),
                  RejectionCode::kSourceNotFound));
  const TempFolder folder;
  folder.Write("tokenizer_config.json", "{");
  const auto checkpoint = Checkpoint::Open(folder.path());
  EXPECT_TRUE(Has(checkpoint, RejectionCode::kFileMissing));
  EXPECT_TRUE(Has(checkpoint, RejectionCode::kJsonInvalid));
  EXPECT_THAT(Text(checkpoint), HasSubstr("config.json"));
  EXPECT_THAT(Text(checkpoint), HasSubstr("the folder has no weights"));
}

TEST(Checkpoint, RefusesWhatIsNotAFile) {
  const ShardedFolder folder;
  fs::create_directory(folder.path() / "generation_config.json");
  EXPECT_TRUE(Has(folder.OpenWith(kGoodMap), RejectionCode::kFileUnreadable));
  fs::remove(folder.path() / "generation_config.json");
  // A pipe must not be waited for.
  fs::remove(folder.path() / "one.safetensors");
  ASSERT_EQ(::mkfifo((folder.path() / "one.safetensors").c_str(), 0600), 0);
  EXPECT_TRUE(Has(folder.OpenWith(kGoodMap), RejectionCode::kFileUnreadable));
}

TEST(Checkpoint, RefusesAnOversizedConfig) {
  const ShardedFolder folder;
  folder.WriteMap(kGoodMap);
  fs::resize_file(folder.path() / "config.json", (16 << 20) + 1);
  EXPECT_TRUE(
      Has(Checkpoint::Open(folder.path()), RejectionCode::kFileUnreadable));
}

TEST(Checkpoint, RefusesAMissingShardByPath) {
  const ShardedFolder folder;
  const auto checkpoint =
      folder.OpenWith(R"({"a":"one.safetensors","b":"gone.safetensors"})");
  EXPECT_TRUE(Has(checkpoint, RejectionCode::kFileMissing));
  EXPECT_THAT(Text(checkpoint), HasSubstr("gone.safetensors"));
}

TEST(Checkpoint, RefusesATensorInTwoShards) {
  const ShardedFolder folder;
  folder.Write("two.safetensors", SafetensorsOf({{"a", {3}}, {"b", {1}}}));
  const auto checkpoint = folder.OpenWith(kGoodMap);
  EXPECT_TRUE(Has(checkpoint, RejectionCode::kTensorDuplicate));
}

TEST(Checkpoint, RefusesAnIndexThatContradictsTheShards) {
  const ShardedFolder folder;
  for (
      const std::string map :
      {R"({"a":"one.safetensors","b":"two.safetensors","c":"two.safetensors"})",
       R"({"a":"two.safetensors","b":"one.safetensors"})", "{}", "[]"}) {
    EXPECT_TRUE(Has(folder.OpenWith(map), RejectionCode::kIndexInconsistent))
        << map;
  }
  // A tensor of a shard that the index does not name.
  folder.Write("two.safetensors", SafetensorsOf({{"b", {1}}, {"d", {1}}}));
  EXPECT_TRUE(
      Has(folder.OpenWith(kGoodMap), RejectionCode::kIndexInconsistent));
  folder.Write(kIndex, R"({"weight_map":{"a":"x","a":"y"}})");
  EXPECT_TRUE(
      Has(Checkpoint::Open(folder.path()), RejectionCode::kJsonInvalid));
}

TEST(Checkpoint, RefusesShardNamesThatLeaveTheFolder) {
  const ShardedFolder folder;
  const std::string absolute = (folder.path() / "one.safetensors").string();
  for (const std::string& shard :
       {std::string("../one.safetensors"), absolute,
        std::string("sub/../one.safetensors"), std::string(".."),
        std::string("."), std::string(), std::string("a\\\\b"),
        std::string("a\\u0000b")}) {
    const auto checkpoint = folder.OpenWith(R"({"a":")" + shard + R"("})");
    EXPECT_TRUE(Has(checkpoint, RejectionCode::kIndexInconsistent)) << shard;
  }
  EXPECT_TRUE(
      Has(folder.OpenWith(R"({"a":1})"), RejectionCode::kIndexInconsistent));
}

TEST(Checkpoint, RefusesNamesNoMessageCanShow) {
  const ShardedFolder folder;
  for (const std::string& name :
       {std::string(), std::string("a\\u001b[2J"), std::string(2000, 'n')}) {
    const auto checkpoint =
        folder.OpenWith("{\"" + name + R"(":"one.safetensors"})");
    EXPECT_TRUE(Has(checkpoint, RejectionCode::kIndexInconsistent)) << name;
    EXPECT_EQ(Text(checkpoint).find('\x1b'), std::string::npos);
    EXPECT_LT(Text(checkpoint).size(), 1000u);
  }
  const auto shard =
      folder.OpenWith(R"({"a":")" + std::string(1'000'000, 's') + R"("})");
  EXPECT_TRUE(Has(shard, RejectionCode::kIndexInconsistent));
  EXPECT_LT(Text(shard).size(), 1000u);
}

TEST(Checkpoint, ListsTheFirstOfManyFaults) {
  const ShardedFolder folder;
  const auto list_of = [&](const std::string& shard_suffix) {
    std::string map = "{";
    for (int i = 0; i < 1000; ++i) {
      const std::string n = std::to_string(i);
      map += "\"t" + n + "\":\"s" + n + shard_suffix + "\",";
    }
    map.back() = '}';
    return std::get<Rejections>(folder.OpenWith(map).error()).list();
  };
  const auto missing = list_of(".safetensors");
  EXPECT_LE(missing.size(), 22u);
  EXPECT_EQ(missing.front().code, RejectionCode::kFileMissing);
  EXPECT_EQ(missing.back().got, "980 more");
  EXPECT_LE(list_of("/x").size(), 21u);
}

TEST(Checkpoint, RefusesASingleFileBesideAnIndexThatIgnoresIt) {
  const ShardedFolder folder;
  folder.Write("model.safetensors", SafetensorsOf({{"a", {2}}}));
  EXPECT_TRUE(Has(folder.OpenWith(kGoodMap), RejectionCode::kSourceAmbiguous));
  EXPECT_TRUE(folder.OpenWith(R"({"a":"model.safetensors"})").has_value());
}

TEST(Checkpoint, DigestIsOfContentNotOfPlace) {
  const ShardedFolder first;
  const ShardedFolder second;
  const Digest digest = first.OpenWith(kGoodMap)->digest();
  EXPECT_EQ(second.OpenWith(kGoodMap)->digest(), digest);
  second.Write("config.json", "{ }");
  EXPECT_NE(second.OpenWith(kGoodMap)->digest(), digest);
  second.Write("config.json", "{}");
  second.Write("two.safetensors", SafetensorsOf({{"b", {4}}}));
  EXPECT_NE(second.OpenWith(kGoodMap)->digest(), digest);
}

TEST(Checkpoint, A3_NoticesAFileThatChanged) {
  const ShardedFolder folder;
  const auto checkpoint = folder.OpenWith(kGoodMap);
  EXPECT_TRUE(checkpoint->CheckUnchanged().has_value());
  const auto is_changed = [&](const char* how) {
    const Result<void> result = checkpoint->CheckUnchanged();
    if (result.has_value()) return false;
    const auto& failure = std::get<Failure>(result.error());
    return failure.kind == FailureKind::kChangedFile &&
           failure.message.find(how) != std::string::npos;
  };
  // Replaced: the opened file is intact, the path names another.
  const fs::path path = folder.path() / "two.safetensors";
  fs::rename(path, folder.path() / "aside");
  fs::copy_file(folder.path() / "aside", path);
  EXPECT_TRUE(is_changed("replaced"));
  fs::rename(folder.path() / "aside", path);
  EXPECT_TRUE(checkpoint->CheckUnchanged().has_value());
  // Truncated in place: the read ends in a failure, not in garbage.
  fs::resize_file(path, 10);
  EXPECT_TRUE(is_changed("was changed"));
  char byte = 0;
  const Result<void> read =
      checkpoint->weight_files()[FileId(1)].ReadAt(10, &byte, 1);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(std::get<Failure>(read.error()).kind, FailureKind::kChangedFile);
}

}  // namespace
}  // namespace signet::model
