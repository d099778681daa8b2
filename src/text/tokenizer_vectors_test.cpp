// Ten thousand strings and what the reference implementation makes of them
// (tools/oracle/README.md). Always for the demo model's tokenizer; for
// Qwen3.6's where its file is at hand.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "text/nfc.h"
#include "text/sha256_testing.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"
#include "text/tokenizer_testing.h"

namespace signet::text {
namespace {

// The published file, and the one that tools/oracle/qwen_tokenizer_json.py
// rebuilds; the vectors hold for both.
constexpr char kPublishedSha256[] =
    "5f9e4d4901a92b997e463c1f46055088b6cca5ca61a6522d1b9f64c4bb81cb42";
constexpr char kRebuiltSha256[] =
    "af2cd7e8d4a7a08cb5e3e5018b47d6f24761b77bd966eb055aa9afa313932505";
constexpr size_t kNumStrings = 10000;

const std::filesystem::path kRoot = SIGNET_SOURCE_DIR;
const std::filesystem::path kGoldens = kRoot / "tests/goldens/tokenizer";

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> ReadLines(const std::string& name) {
  std::istringstream stream(ReadFile(kGoldens / name));
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void ExpectVectors(const Tokenizer& tokenizer, const std::string& ids_name) {
  const std::vector<std::string> texts = ReadLines("random.jsonl");
  const std::vector<std::string> lists = ReadLines(ids_name);
  ASSERT_EQ(texts.size(), kNumStrings);
  ASSERT_EQ(lists.size(), kNumStrings);
  int differences = 0;
  for (size_t i = 0; i < kNumStrings; ++i) {
    const std::string text = nlohmann::json::parse(texts[i]);
    std::istringstream list(lists[i]);
    const Ids expected{std::istream_iterator<int32_t>(list), {}};
    const Ids ids = EncodeOrThrow(tokenizer, text);
    if (ids != expected && ++differences <= 5) {
      EXPECT_EQ(ids, expected) << "string " << i << ": " << texts[i];
    }
    // Shown token by token, the text comes back in normal form.
    StreamDecoder decoder(&tokenizer, StreamDecoder::Special::kShow);
    std::string shown;
    for (const int32_t id : ids) shown += decoder.Push(id);
    shown += decoder.Finish();
    std::string from_text;
    std::string from_shown;
    ASSERT_EQ(ToNfc(shown, &from_shown), ToNfc(text, &from_text))
        << "string " << i << ": " << texts[i];
  }
  EXPECT_EQ(differences, 0);
}

TEST(TokenizerVectorsTest, Sha256IsTheStandardsOwn) {
  EXPECT_EQ(Sha256Hex("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(
      Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(TokenizerVectorsTest, TheDemoTokenizerAgreesWithTheReference) {
  const std::string file = ReadFile(kRoot / "models/demo/tokenizer.json");
  const nlohmann::json manifest =
      nlohmann::json::parse(ReadFile(kGoldens / "manifest.json"));
  ASSERT_EQ(manifest["demo"]["sha256"], Sha256Hex(file))
      << "the vectors are of another file: run "
         "tools/oracle/tokenizer_vectors.py";
  const auto tokenizer = Tokenizer::Parse(
      file, ReadFile(kRoot / "models/demo/tokenizer_config.json"));
  ASSERT_TRUE(tokenizer.has_value()) << Describe(tokenizer.error());
  ASSERT_EQ((*tokenizer)->eos_ids().size(), 1u);
  EXPECT_TRUE((*tokenizer)->IsSpecial((*tokenizer)->eos_ids()[0]));
  ExpectVectors(**tokenizer, "random.demo.ids");
}

TEST(TokenizerVectorsTest, TheQwenTokenizerAgreesWithTheReference) {
  const char* path = std::getenv("SIGNET_QWEN_TOKENIZER");
  if (path == nullptr) {
    GTEST_SKIP() << "SIGNET_QWEN_TOKENIZER does not name a Qwen3.6 "
                    "tokenizer.json";
  }
  const std::string file = ReadFile(path);
  const std::string sha256 = Sha256Hex(file);
  if (sha256 != kPublishedSha256 && sha256 != kRebuiltSha256) {
    GTEST_SKIP() << path << " is not the Qwen3.6 tokenizer.json: its SHA-256 "
                 << "is " << sha256;
  }
  const auto tokenizer = Tokenizer::Parse(file, {});
  ASSERT_TRUE(tokenizer.has_value()) << Describe(tokenizer.error());
  for (const std::string& line : ReadLines("vectors.jsonl")) {
    const nlohmann::json vector = nlohmann::json::parse(line);
    EXPECT_EQ(EncodeOrThrow(**tokenizer, vector["text"].get<std::string>()),
              vector["ids"].get<Ids>())
        << line;
  }
  ExpectVectors(**tokenizer, "random.qwen36.ids");
}

}  // namespace
}  // namespace signet::text
