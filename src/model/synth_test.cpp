#include "model/synth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "model/checkpoint_testing.h"
#include "model/filler_tokenizer.h"
#include "model/manifest.h"

namespace signet::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::Has;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::Text;
using testing::TinyConfig;

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::map<std::string, std::string> ReadFolder(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = ReadFile(entry.path());
  }
  return files;
}

Result<std::shared_ptr<const Manifest>> Open(const fs::path& folder) {
  Result<Checkpoint> checkpoint = Checkpoint::Open(folder);
  if (!checkpoint.has_value()) {
    return tl::unexpected<Error>(checkpoint.error());
  }
  return BuildManifest(
      std::make_shared<const Checkpoint>(*std::move(checkpoint)));
}

/// The bytes of one range of a checkpoint.
std::string BytesOf(const Manifest& manifest, const FileRange& range) {
  std::string bytes(range.size_bytes(), '\0');
  EXPECT_TRUE(manifest.checkpoint()
                  .weight_files()[range.file]
                  .ReadAt(range.begin_bytes, bytes.data(), bytes.size())
                  .has_value());
  return bytes;
}

class Synth : public ::testing::Test {
 protected:
  Synth() {
    json config = TinyConfig(Family::kQwen35Moe);
    config["vocab_size"] = 300;
    options.config = folder.Write("config.json", config.dump()).string();
    options.folder = folder.path() / "out";
  }

  TempFolder folder;
  SynthOptions options;
};

TEST_F(Synth, WritesACheckpointThatProves) {
  const auto report = Synthesize(options);
  ASSERT_TRUE(report.has_value()) << Text(report);
  EXPECT_EQ(report->num_tensors, 36);
  EXPECT_EQ(report->num_shards, 1);
  EXPECT_EQ(report->tokenizer, "byte-level filler");
  EXPECT_EQ(fs::canonical(report->folder), fs::canonical(options.folder));
  EXPECT_THAT(report->text, HasSubstr("36 tensors"));
  const auto manifest = Open(options.folder);
  ASSERT_TRUE(manifest.has_value()) << Text(manifest);
  EXPECT_EQ((*manifest)->language_bytes(), report->size);
  EXPECT_TRUE((*manifest)->checkpoint().tokenizer_file().has_value());
  const json config = json::parse((*manifest)->checkpoint().config_json());
  EXPECT_EQ(config["signet_tokenizer"], "byte-level filler");
  // Nothing but the folder was left beside it.
  EXPECT_EQ(ReadFolder(folder.path()).size(), 2u);
}

TEST_F(Synth, AnyThreadCountWritesTheSameBytes) {
  options.shard_bytes = 4096;
  ASSERT_TRUE(Synthesize(options).has_value());
  const auto one = ReadFolder(options.folder);
  EXPECT_GT(one.size(), 5u);
  options.threads = 7;
  options.folder = folder.path() / "seven";
  ASSERT_TRUE(Synthesize(options).has_value());
  EXPECT_EQ(ReadFolder(options.folder), one);
}

TEST_F(Synth, TheSeedChangesEveryTensor) {
  ASSERT_TRUE(Synthesize(options).has_value());
  const auto first = Open(options.folder).value();
  options.seed = 1;
  options.folder = folder.path() / "other";
  ASSERT_TRUE(Synthesize(options).has_value());
  const auto second = Open(options.folder).value();
  for (size_t i = 0; i < first->weights().size(); ++i) {
    const WeightId id(static_cast<int32_t>(i));
    EXPECT_NE(BytesOf(*first, first->weights()[id].source),
              BytesOf(*second, second->weights()[id].source))
        << first->weights()[id].name;
  }
  EXPECT_NE(first->digest(), second->digest());
}

TEST_F(Synth, LayoutAndNamingChangeNoWeight) {
  ASSERT_TRUE(Synthesize(options).has_value());
  const auto fused = Open(options.folder).value();
  options.experts = SynthExperts::kPerExpert;
  options.naming = SynthNaming::kNested;
  options.extras = SynthExtras::kVisionAndMtp;
  options.shard_bytes = 1000;
  options.folder = folder.path() / "single";
  ASSERT_TRUE(Synthesize(options).has_value());
  const auto opened = Open(options.folder);
  ASSERT_TRUE(opened.has_value()) << Text(opened);
  const Manifest& single = **opened;
  EXPECT_EQ(single.skipped().size(), 6u);
  EXPECT_EQ(single.config().model_type, "qwen3_5_moe");
  ASSERT_EQ(single.weights().size(), fused->weights().size());
  for (size_t i = 0; i < fused->weights().size(); ++i) {
    const WeightId id(static_cast<int32_t>(i));
    EXPECT_EQ(BytesOf(*fused, fused->weights()[id].source),
              BytesOf(single, single.weights()[id].source));
  }
  for (size_t i = 0; i < fused->expert_groups().size(); ++i) {
    const ExpertGroup& a = fused->expert_groups()[i];
    const ExpertGroup& b = single.expert_groups()[i];
    EXPECT_EQ(b.layout, ExpertLayout::kPerExpert);
    for (const auto member :
         {&ExpertGroup::gate, &ExpertGroup::up, &ExpertGroup::down}) {
      for (int e = 0; e < 4; ++e) {
        EXPECT_EQ(BytesOf(*fused, (a.*member).sources[ExpertId(e)]),
                  BytesOf(single, (b.*member).sources[ExpertId(e)]));
      }
    }
  }
}

TEST_F(Synth, OverridesLayersAndVocabulary) {
  json config = TinyConfig(Family::kQwen35Moe);
  config["vocab_size"] = 300;
  config["eos_token_id"] = {299, 5};
  config["bos_token_id"] = 299;
  folder.Write("config.json", config.dump());
  options.layers = 5;
  options.vocab = 200;
  const auto report = Synthesize(options);
  ASSERT_TRUE(report.has_value()) << Text(report);
  const auto manifest = Open(options.folder).value();
  EXPECT_EQ(manifest->config().vocab, 200);
  EXPECT_EQ(manifest->config().eos_ids, std::vector<int32_t>{5});
  ASSERT_EQ(manifest->config().layers.size(), 5u);
  EXPECT_EQ(manifest->config().layers[3].mixer, MixerKind::kFullAttention);
  EXPECT_EQ(manifest->config().layers[4].mixer, MixerKind::kLinearAttention);
  // Too few tokens for the bytes: none is made, and the config says so.
  EXPECT_FALSE(manifest->checkpoint().tokenizer_file().has_value());
  EXPECT_THAT(manifest->checkpoint().config_json(), HasSubstr("no tokenizer"));
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) {
    options.folder = folder.path() / "bad";
    options.layers = bad;
    EXPECT_TRUE(Has(Synthesize(options), RejectionCode::kConfigFieldInvalid));
  }
}

TEST_F(Synth, TurnsANestedConfigIntoTheTextClass) {
  options.config = "demo";
  options.naming = SynthNaming::kTextOnly;
  options.layers = 1;
  ASSERT_TRUE(Synthesize(options).has_value());
  const auto manifest = Open(options.folder).value();
  EXPECT_EQ(manifest->config().model_type, "qwen3_5_moe_text");
  EXPECT_TRUE(manifest->config().tied_embeddings);
  EXPECT_THAT(manifest->checkpoint().config_json(),
              HasSubstr("Qwen3_5MoeForCausalLM"));
}

TEST_F(Synth, KeepsTheConfigsOwnTokenizer) {
  folder.Write("tokenizer.json", "{\"own\":1}");
  folder.Write("chat_template.jinja", "{{x}}");
  const auto report = Synthesize(options);
  ASSERT_TRUE(report.has_value()) << Text(report);
  EXPECT_EQ(ReadFile(options.folder / "tokenizer.json"), "{\"own\":1}");
  EXPECT_EQ(ReadFile(options.folder / "chat_template.jinja"), "{{x}}");
  EXPECT_FALSE(json::parse(ReadFile(options.folder / "config.json"))
                   .contains("signet_tokenizer"));
  // It does not fit a smaller vocabulary.
  options.vocab = 280;
  options.folder = folder.path() / "smaller";
  EXPECT_EQ(Synthesize(options)->tokenizer, "byte-level filler");
}

TEST_F(Synth, RefusesAPlaceThatIsTaken) {
  fs::create_directory(options.folder);
  EXPECT_TRUE(Synthesize(options).has_value());  // an empty folder is free
  EXPECT_TRUE(Has(Synthesize(options), RejectionCode::kRequestInvalid));
  options.folder = folder.path() / "config.json";
  EXPECT_TRUE(Has(Synthesize(options), RejectionCode::kRequestInvalid));
  options.folder = folder.path() / "no" / "where";
  EXPECT_TRUE(Has(Synthesize(options), RejectionCode::kFileMissing));
  options.config = "no-such-model";
  EXPECT_TRUE(Has(Synthesize(options), RejectionCode::kSourceNotFound));
  EXPECT_EQ(ReadFolder(folder.path()).size(), 2u);
}

TEST_F(Synth, RefusesADiskThatIsTooSmallAndLeavesNothing) {
  options.config = "qwen3.6:35b-a3b";
  options.layers = 1000;  // 1.7 TB
  const auto report = Synthesize(options);
  EXPECT_TRUE(Has(report, RejectionCode::kRequestInvalid));
  EXPECT_THAT(Text(report), HasSubstr("the disk lacks"));
  EXPECT_EQ(ReadFolder(folder.path()).size(), 1u);
}

TEST_F(Synth, SparseFilesHaveTheirLengthAndTakeNoRoom) {
  options.config = "qwen3.6:35b-a3b";
  options.layers = 200;  // 340 GB
  options.sparse = true;
  const auto report = Synthesize(options);
  ASSERT_TRUE(report.has_value()) << Text(report);
  const auto manifest = Open(options.folder);
  ASSERT_TRUE(manifest.has_value()) << Text(manifest);
  EXPECT_EQ((*manifest)->language_bytes(), report->size);
  EXPECT_GT(report->size, Bytes(uint64_t{300} << 30));
  for (const auto& file : (*manifest)->checkpoint().weight_files()) {
    struct stat facts = {};
    ASSERT_EQ(::fstat(file.descriptor(), &facts), 0);
    EXPECT_LT(512 * facts.st_blocks, 1 << 20) << file.path();
  }
}

TEST_F(Synth, AFailureLeavesNothingBehind) {
  // A file of the tokenizer's cannot be copied.
  folder.Write("tokenizer.json", "{}");
  fs::create_directory(folder.path() / "vocab.json");
  EXPECT_FALSE(Synthesize(options).has_value());
  EXPECT_FALSE(fs::exists(options.folder));
  EXPECT_EQ(ReadFolder(folder.path()).size(), 3u);
}

TEST_F(Synth, AStopLeavesNothingBehind) {
  const std::atomic<bool> stop = true;
  options.stop = &stop;
  const auto report = Synthesize(options);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(std::get<Failure>(report.error()).kind, FailureKind::kAborted);
  EXPECT_EQ(ReadFolder(folder.path()).size(), 1u);  // the config
}

TEST(FillerTokenizer, HasEveryByteAndANumberForTheRest) {
  const json tokenizer = json::parse(FillerTokenizerJson(300));
  const json& vocab = tokenizer["model"]["vocab"];
  EXPECT_EQ(vocab.size(), 300u);
  EXPECT_EQ(vocab["A"], 65);
  EXPECT_EQ(vocab["\""], 34);
  EXPECT_EQ(vocab["\u0120"], 32);  // the space
  EXPECT_EQ(vocab["\u0100"], 0);
  EXPECT_EQ(vocab["\u0143"], 173);
  EXPECT_EQ(vocab["\u00ff"], 255);
  EXPECT_EQ(vocab["<filler299>"], 299);
  EXPECT_TRUE(tokenizer["model"]["merges"].empty());
}

}  // namespace
}  // namespace signet::model
