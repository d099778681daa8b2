// Files made to break the parser. Each is refused by name; none crashes it,
// hangs it or is half accepted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "text/tokenizer_testing.h"

namespace signet::text {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

TEST(TokenizerHostileTest, WhatIsNotJsonIsRefusedWithItsByte) {
  for (const std::string& file :
       {std::string("{"), std::string("nonsense"), std::string("{\"a\": NaN}"),
        std::string("{\"a\": 1e999}"), std::string("{\"a\": 01}"),
        std::string("{\"a\": \"\xFF\"}"), std::string("{\"a\": \"\\ud800\"}"),
        std::string("{} {}"), std::string("{\"a\": \"\x01\"}"),
        std::string("\0", 1), std::string("{\"a\": 1,}")}) {
    const std::vector<Rejection> refusals = Refusals(file);
    ASSERT_EQ(refusals.size(), 1u) << file;
    EXPECT_EQ(refusals[0].code, RejectionCode::kTokenizerInvalid);
    EXPECT_THAT(refusals[0].where, HasSubstr("tokenizer.json: byte "));
    const std::string good = WithTwoMerges().dump();
    EXPECT_FALSE(Refusals(good, file).empty());
  }
  for (const char* file : {"[]", "7", "null", "\"text\"", "{}", ""}) {
    EXPECT_FALSE(Refusals(file).empty()) << file;
  }
}

TEST(TokenizerHostileTest, RepeatedKeysAreRefused) {
  const std::string good = WithTwoMerges().dump();
  const auto repeat = [&](const std::string& before, const std::string& more) {
    std::string file = good;
    file.insert(file.find(before), more);
    return Refusals(file);
  };
  const auto vocab = repeat("\"merges\":", "\"vocab\": {\"a\": 1},");
  ASSERT_FALSE(vocab.empty());
  EXPECT_EQ(vocab[0].where, "tokenizer.json: model.vocab");
  const auto merges = repeat("\"merges\":", "\"merges\": [],");
  ASSERT_FALSE(merges.empty());
  EXPECT_EQ(merges[0].where, "tokenizer.json: model.merges");
  const auto token = repeat("\"ab\":256", "\"ab\":256,");
  ASSERT_FALSE(token.empty());
  EXPECT_EQ(token[0].where, "tokenizer.json: model.vocab[\"ab\"]");
  const auto scalar = repeat("\"normalizer\":", "\"normalizer\": 7,");
  ASSERT_FALSE(scalar.empty());
  EXPECT_EQ(scalar[0].where, "tokenizer.json: normalizer");
}

TEST(TokenizerHostileTest, HostileKeysAreQuotedShortly) {
  const std::string key = "\"\\n\\u001b" + std::string(100000, 'k') + "\"";
  const std::string file = "{" + key + ":1," + key + ":2}";
  const std::vector<Rejection> refusals = Refusals(file);
  ASSERT_FALSE(refusals.empty());
  EXPECT_LT(refusals[0].where.size(), 200u);
  EXPECT_THAT(refusals[0].where, HasSubstr("\"\\x0A\\x1Bkkk"));
}

TEST(TokenizerHostileTest, TooMuchIsRefused) {
  const size_t depth = 200000;
  for (const std::string& file :
       {std::string(depth, '['),
        "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}",
        "{\"model\":{\"merges\":" + std::string(depth, '['),
        "{\"model\":{\"vocab\":{\"a\":" + std::string(depth, '[')}) {
    const std::vector<Rejection> refusals = Refusals(file);
    ASSERT_FALSE(refusals.empty());
    EXPECT_LT(refusals[0].where.size(), 300u);
  }
  EXPECT_FALSE(Refusals(std::string((size_t{128} << 20) + 1, ' ')).empty());
  std::string many = "{\"a\":[0";
  for (int i = 0; i < 5000000; ++i) many += ",0";
  EXPECT_THAT(Refusals(many + "]}")[0].message, HasSubstr("too many values"));
}

TEST(TokenizerHostileTest, ReportsEverythingUpToALimit) {
  Json file = WithTwoMerges();
  file["model"]["byte_fallback"] = true;
  file["decoder"] = nullptr;
  file["added_tokens"][0]["lstrip"] = true;
  file["model"]["vocab"]["x y"] = 400;
  EXPECT_EQ(Refusals(file.dump()).size(), 4u);
  for (int i = 0; i < 1000; ++i) file["model"]["merges"].push_back(i);
  const std::vector<Rejection> refusals = Refusals(file.dump());
  EXPECT_EQ(refusals.size(), 33u);
  EXPECT_THAT(refusals.back().message, HasSubstr("are not listed"));
}

TEST(TokenizerHostileTest, LongAndBinaryTokensAreQuotedShortly) {
  Json file = WithTwoMerges();
  file["model"]["vocab"]["\n\u007F" + std::string(100000, 'x')] = 400;
  const std::vector<Rejection> refusals = Refusals(file.dump());
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_LT(refusals[0].where.size(), 200u);
  EXPECT_THAT(refusals[0].where, HasSubstr("\"\\x0A\\x7Fxxx"));
}

// Every prefix, and every byte changed in a few ways: refused or accepted, and
// never anything else. Run it under the sanitizers.
TEST(TokenizerHostileTest, NoEditOfTheBytesBreaksTheParser) {
  Json json = WithTwoMerges();
  Json& vocab = json["model"]["vocab"];
  std::string file = json.dump();
  const std::string config =
      R"({"eos_token":"<|end|>","added_tokens_decoder":{"301":{"content":"<x>",)"
      R"("special":false,"normalized":false,"lstrip":false,"rstrip":false,)"
      R"("single_word":false}}})";
  ASSERT_TRUE(Refusals(file, config).empty());
  // The bytes of the long alphabet in the middle are all alike.
  const size_t alphabet = file.find("\"vocab\":{") + 9;
  const size_t alphabet_end = file.find('}', alphabet) - 60;
  ASSERT_GT(vocab.size(), 256u);
  std::mt19937 random(4);
  for (size_t at = 0; at < file.size(); ++at) {
    if (at > alphabet + 60 && at < alphabet_end && at % 16 != 0) continue;
    EXPECT_FALSE(Refusals(std::string_view(file).substr(0, at)).empty());
    for (const char byte : {'"', '{', ']', '9', static_cast<char>(random())}) {
      std::string edited = file;
      edited[at] = byte;
      Refusals(edited, config);
    }
  }
  for (size_t at = 0; at < config.size(); ++at) {
    if (at > 0) {
      EXPECT_FALSE(
          Refusals(file, std::string_view(config).substr(0, at)).empty());
    }
    std::string edited = config;
    edited[at] = static_cast<char>(random());
    Refusals(file, edited);
  }
}

TEST(TokenizerHostileTest, OneLongPieceTakesNoQuadraticTime) {
  constexpr size_t kLength = 320000;
  nlohmann::json file = ByteTokenizerJson();
  AddMerge(&file, "a", "a", 256);
  AddMerge(&file, "aa", "aa", 257);
  AddMerge(&file, "aaaa", "aaaa", 258);
  AddAdded(&file, 300, std::string(200, 'a') + "b", true);
  const auto tokenizer = ParseOrThrow(file);
  const CpuTimer timer;
  EXPECT_EQ(EncodeOrThrow(*tokenizer, std::string(kLength, 'a')),
            Ids(kLength / 8, 258));
  std::string marks;
  for (size_t i = 0; i < kLength; ++i) marks += "\u0301\u0323";
  EXPECT_EQ(EncodeOrThrow(*tokenizer, marks).size(), 4 * kLength);
  EXPECT_LT(timer.Seconds(), 20);
}

TEST(TokenizerHostileTest, AHostileRegexEndsInAnError) {
  Json file = ByteTokenizerJson("(?:a+)+[bc]");
  const auto tokenizer = ParseOrThrow(file);
  EXPECT_EQ(EncodeOrThrow(*tokenizer, "aab").size(), 3u);
  const auto ids = tokenizer->Encode(std::string(60, 'a'));
  ASSERT_FALSE(ids.has_value());
  const auto& rejections = std::get<Rejections>(ids.error());
  EXPECT_TRUE(rejections.Has(RejectionCode::kRequestInvalid));
}

}  // namespace
}  // namespace signet::text
