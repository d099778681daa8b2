#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "text/tokenizer_testing.h"

namespace signet::text {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(TokenizerTest, TextWithoutMergesIsItsBytes) {
  const auto tokenizer = ParseOrThrow(ByteTokenizerJson());
  EXPECT_THAT(EncodeOrThrow(*tokenizer, "az é"),
              ElementsAre('a', 'z', ' ', 0xC3, 0xA9));
  EXPECT_THAT(EncodeOrThrow(*tokenizer, std::string("a\0b", 3)),
              ElementsAre('a', 0, 'b'));
  EXPECT_THAT(EncodeOrThrow(*tokenizer, ""), IsEmpty());
}

TEST(TokenizerTest, TheLowestRankMergesFirst) {
  nlohmann::json file = ByteTokenizerJson();
  AddMerge(&file, "b", "c", 256);
  AddMerge(&file, "a", "b", 257);
  const auto tokenizer = ParseOrThrow(file);
  EXPECT_THAT(EncodeOrThrow(*tokenizer, "abc"), ElementsAre('a', 256));
  EXPECT_THAT(EncodeOrThrow(*tokenizer, "abb"), ElementsAre(257, 'b'));
}

TEST(TokenizerTest, AtOneRankTheLeftmostPairMergesFirst) {
  nlohmann::json file = ByteTokenizerJson();
  AddMerge(&file, "a", "a", 256);
  const auto tokenizer = ParseOrThrow(file);
  EXPECT_THAT(EncodeOrThrow(*tokenizer, "aaaaa"), ElementsAre(256, 256, 'a'));
}

TEST(TokenizerTest, MergesBuildOnMerges) {
  nlohmann::json file = ByteTokenizerJson();
  AddMerge(&file, "l", "l", 256);
  AddMerge(&file, "h", "e", 257);
  AddMerge(&file, "he", "ll", 258);
  const auto tokenizer = ParseOrThrow(file);
  EXPECT_THAT(EncodeOrThrow(*tokenizer, "hello"), ElementsAre(258, 'o'));
}

TEST(TokenizerTest, BothFormsOfTheMergeListMeanTheSame) {
  nlohmann::json file = ByteTokenizerJson();
  AddMerge(&file, "a", "b", 256);
  AddMerge(&file, "ab", " ", 257);
  const auto of_pairs = ParseOrThrow(file);
  file["model"]["merges"] = nlohmann::json::parse(R"(["a b", "ab \u0120"])");
  const auto of_lines = ParseOrThrow(file);
  EXPECT_EQ(EncodeOrThrow(*of_pairs, "abab c"),
            EncodeOrThrow(*of_lines, "abab c"));
}

// The definition, with none of the bookkeeping that makes it fast.
Ids MergeByDefinition(const std::string& text,
                      const std::map<std::pair<int, int>, int>& merged) {
  Ids ids;
  for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
  while (true) {
    size_t best = ids.size();
    int lowest = INT_MAX;  // ids of merged tokens ascend with their ranks
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = merged.find({ids[i], ids[i + 1]});
      if (found == merged.end() || found->second >= lowest) continue;
      lowest = found->second;
      best = i;
    }
    if (best == ids.size()) return ids;
    ids[best] = lowest;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(TokenizerTest, PiecesOfAnyLengthMergeByTheDefinition) {
  std::mt19937 random(1);
  for (int round = 0; round < 40; ++round) {
    nlohmann::json file = ByteTokenizerJson();
    std::vector<std::string> tokens = {"a", "b", "c"};
    std::map<std::pair<int, int>, int> merged;
    std::map<std::string, int> id_of = {{"a", 'a'}, {"b", 'b'}, {"c", 'c'}};
    while (tokens.size() < 24) {
      const std::string left = tokens[random() % tokens.size()];
      const std::string right = tokens[random() % tokens.size()];
      if (left.size() + right.size() > 9 || id_of.contains(left + right)) {
        continue;
      }
      const int id = static_cast<int>(256 + merged.size());
      AddMerge(&file, left, right, id);
      merged[{id_of[left], id_of[right]}] = id;
      id_of[left + right] = id;
      tokens.push_back(left + right);
    }
    const auto tokenizer = ParseOrThrow(file);
    for (const size_t length : {1, 2, 5, 63, 64, 65, 66, 130, 400}) {
      std::string text;
      while (text.size() < length) text += "abc"[random() % 3];
      ASSERT_EQ(EncodeOrThrow(*tokenizer, text),
                MergeByDefinition(text, merged))
          << text << " in round " << round;
    }
  }
}

TEST(TokenizerTest, MergesStayInsideAPieceOfTheRegex) {
  nlohmann::json file = ByteTokenizerJson();
  AddMerge(&file, "1", "2", 256);
  AddMerge(&file, "a", "1", 257);
  AddMerge(&file, " ", "a", 258);
  const auto tokenizer = ParseOrThrow(file);
  EXPECT_THAT(EncodeOrThrow(*tokenizer, "12a1 a"),
              ElementsAre('1', '2', 'a', '1', 258));
}

TEST(TokenizerTest, IgnoreMergesTakesAPieceThatIsATokenWhole) {
  nlohmann::json file = ByteTokenizerJson();
  file["model"]["vocab"]["abc"] = 256;
  AddMerge(&file, "a", "b", 257);
  const auto merging = ParseOrThrow(file);
  EXPECT_THAT(EncodeOrThrow(*merging, "abc"), ElementsAre(257, 'c'));
  file["model"]["ignore_merges"] = true;
  const auto ignoring = ParseOrThrow(file);
  EXPECT_THAT(EncodeOrThrow(*ignoring, "abc"), ElementsAre(256));
  EXPECT_THAT(EncodeOrThrow(*ignoring, "abcd"), ElementsAre(257, 'c', 'd'));
}

TEST(TokenizerTest, TextIsNormalisedToNfcWhereTheFileSaysSo) {
  nlohmann::json file = ByteTokenizerJson();
  const std::string decomposed = "e\u0301";
  EXPECT_THAT(EncodeOrThrow(*ParseOrThrow(file), decomposed),
              ElementsAre(0xC3, 0xA9));
  file["normalizer"] = nlohmann::json::parse(
      R"({"type": "Sequence", "normalizers": [{"type": "NFC"}]})");
  EXPECT_THAT(EncodeOrThrow(*ParseOrThrow(file), decomposed),
              ElementsAre(0xC3, 0xA9));
  file["normalizer"] = nullptr;
  EXPECT_THAT(EncodeOrThrow(*ParseOrThrow(file), decomposed),
              ElementsAre('e', 0xCC, 0x81));
}

nlohmann::json WithAddedTokens(std::vector<std::string> contents) {
  nlohmann::json file = ByteTokenizerJson();
  int32_t id = 300;
  for (const std::string& content : contents) {
    AddAdded(&file, id++, content, true);
  }
  return file;
}

TEST(TokenizerTest, AddedTokensAreCutOutOfTheText) {
  nlohmann::json file = WithAddedTokens({"<|end|>"});
  AddMerge(&file, "a", "b", 256);
  const auto tokenizer = ParseOrThrow(file);
  EXPECT_THAT(EncodeOrThrow(*tokenizer, "ab<|end|>ab<|end|><|end|"),
              ElementsAre(256, 300, 256, 300, '<', '|', 'e', 'n', 'd', '|'));
  EXPECT_THAT(EncodeOrThrow(*tokenizer, "a<|end|>b"),
              ElementsAre('a', 300, 'b'));
}

TEST(TokenizerTest, TheLeftmostAddedTokenWinsThenTheLongest) {
  const auto tokenizer =
      ParseOrThrow(WithAddedTokens({"<a", "<abc", "a>>", "<ab"}));
  EXPECT_THAT(EncodeOrThrow(*tokenizer, "<a>>"), ElementsAre(300, '>', '>'));
  EXPECT_THAT(EncodeOrThrow(*tokenizer, "<abcd"), ElementsAre(301, 'd'));
  EXPECT_THAT(EncodeOrThrow(*tokenizer, "<abd"), ElementsAre(303, 'd'));
  EXPECT_THAT(EncodeOrThrow(*tokenizer, "<<ab"), ElementsAre('<', 303));
  EXPECT_THAT(EncodeOrThrow(*tokenizer, "xa>>"), ElementsAre('x', 302));
}

TEST(TokenizerTest, AddedTokensAreSoughtInTheTextAsItCame) {
  // U+212B is U+00C5 in NFC: that comes too late to make the token.
  const auto letter = ParseOrThrow(WithAddedTokens({"\u00C5<"}));
  EXPECT_THAT(EncodeOrThrow(*letter, "\u00C5<"), ElementsAre(300));
  EXPECT_THAT(EncodeOrThrow(*letter, "\u212B<"), ElementsAre(0xC3, 0x85, '<'));
  // A token takes the letter away from its accent: nothing composes across it.
  const auto plain = ParseOrThrow(WithAddedTokens({"<e"}));
  EXPECT_THAT(EncodeOrThrow(*plain, "<e\u0301"), ElementsAre(300, 0xCC, 0x81));
}

TEST(TokenizerTest, TheConfigAddsTokensAndTheEndOfText) {
  const nlohmann::json file = WithAddedTokens({"<|end|>"});
  nlohmann::json config;
  nlohmann::json& decoder = config["added_tokens_decoder"];
  decoder["300"] = AddedTokenJson(300, "<|end|>", true);
  decoder["320"] = AddedTokenJson(320, "<think>", false);
  const auto without = ParseOrThrow(file, config.dump());
  EXPECT_THAT(without->eos_ids(), IsEmpty());
  EXPECT_THAT(EncodeOrThrow(*without, "<think><|end|>"), ElementsAre(320, 300));
  EXPECT_TRUE(without->IsSpecial(300));
  EXPECT_FALSE(without->IsSpecial(320));
  config["eos_token"] = "<|end|>";
  EXPECT_THAT(ParseOrThrow(file, config.dump())->eos_ids(), ElementsAre(300));
  config["eos_token"] = nlohmann::json::parse(R"({"content": "<think>"})");
  EXPECT_THAT(ParseOrThrow(file, config.dump())->eos_ids(), ElementsAre(320));
}

TEST(TokenizerTest, AnAddedTokenMayStandInTheVocabularyToo) {
  nlohmann::json file = WithAddedTokens({"<|end|>", "a b"});
  file["model"]["vocab"]["<|end|>"] = 300;
  file["model"]["vocab"]["a b"] = 301;  // literal: no spelling of bytes
  const auto tokenizer = ParseOrThrow(file);
  EXPECT_EQ(tokenizer->TokenBytes(300), "<|end|>");
  EXPECT_EQ(tokenizer->TokenBytes(301), "a b");
  EXPECT_THAT(EncodeOrThrow(*tokenizer, "<|end|>a b"), ElementsAre(300, 301));
}

TEST(TokenizerTest, EveryIdHasItsBytesOrNone) {
  nlohmann::json file = WithAddedTokens({"é<"});
  AddMerge(&file, " ", "\xC3", 256);
  const auto tokenizer = ParseOrThrow(file);
  EXPECT_EQ(tokenizer->id_bound(), 301);
  for (int32_t id = 0; id < 256; ++id) {
    EXPECT_EQ(tokenizer->TokenBytes(id),
              std::string(1, static_cast<char>(static_cast<uint8_t>(id))));
    EXPECT_TRUE(tokenizer->HasToken(id));
    EXPECT_FALSE(tokenizer->IsSpecial(id));
  }
  EXPECT_EQ(tokenizer->TokenBytes(256), " \xC3");
  EXPECT_EQ(tokenizer->TokenBytes(300), "é<");
  for (const int32_t id : {-1, 257, 299, 301, INT_MAX, INT_MIN}) {
    EXPECT_EQ(tokenizer->TokenBytes(id), "") << id;
    EXPECT_FALSE(tokenizer->HasToken(id)) << id;
    EXPECT_FALSE(tokenizer->IsSpecial(id)) << id;
  }
}

TEST(TokenizerTest, TextThatIsNotUtf8IsRefusedAtItsFirstBadByte) {
  const auto tokenizer = ParseOrThrow(WithAddedTokens({"<|end|>"}));
  const std::pair<std::string, size_t> cases[] = {
      {"\x80", 0},
      {"ab\xFF", 2},
      {"<|end|>\xC3", 7},              // cut short
      {"\xE4\xB8", 0},                 // cut short
      {"a\xC0\x80", 1},                // overlong
      {"a\xE0\x9F\xBF", 1},            // overlong
      {"a\xF0\x8F\xBF\xBF", 1},        // overlong
      {"\u4E2D\xED\xA0\x80", 3},       // a surrogate
      {"0123456\xF4\x90\x80\x80", 7},  // above U+10FFFF
      {"01234567\xF5\x80\x80\x80", 8},
      {"012345678\xE4\xB8\x41", 9},
  };
  for (const auto& [text, offset] : cases) {
    const auto ids = tokenizer->Encode(text);
    ASSERT_FALSE(ids.has_value()) << text;
    const auto* rejections = std::get_if<Rejections>(&ids.error());
    ASSERT_NE(rejections, nullptr);
    ASSERT_TRUE(rejections->Has(RejectionCode::kRequestInvalid));
    EXPECT_EQ(rejections->list()[0].where,
              "text byte " + std::to_string(offset));
  }
  EXPECT_TRUE(tokenizer->Encode("\uD7FF\uE000\U0010FFFF\u0080").has_value());
}

TEST(TokenizerTest, ManyThreadsEncodeWithOneTokenizer) {
  nlohmann::json file = WithAddedTokens({"<|end|>"});
  AddMerge(&file, "a", "b", 256);
  const auto tokenizer = ParseOrThrow(file);
  std::string text;
  for (int i = 0; i < 200; ++i) text += "abé e\u0301 <|end|> 12\n";
  const Ids expected = EncodeOrThrow(*tokenizer, text);
  std::vector<Ids> got(4);
  std::vector<std::thread> threads;
  threads.reserve(got.size());
  for (Ids& ids : got) {
    threads.emplace_back([&] { ids = *tokenizer->Encode(text); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : got) EXPECT_EQ(ids, expected);
}

}  // namespace
}  // namespace signet::text
