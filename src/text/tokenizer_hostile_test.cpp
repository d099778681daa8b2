// Files made to break the parser. Each is refused by name; none crashes it,
// hangs it or is half accepted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer.h"
#include "text/tokenizer_testing.h"

namespace signet::text {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr RejectionCode kInvalid = RejectionCode::kTokenizerInvalid;
constexpr RejectionCode kUnsupported = RejectionCode::kTokenizerUnsupported;

std::vector<Rejection> Refusals(std::string_view file,
                                std::string_view config = {}) {
  const auto tokenizer = Tokenizer::Parse(file, config);
  if (tokenizer) return {};
  return std::get<Rejections>(tokenizer.error()).list();
}

Json WithTwoMerges() {
  Json file = ByteTokenizerJson();
  AddMerge(&file, "a", "b", 256);
  AddMerge(&file, "ab", "c", 257);
  file["added_tokens"] = {AddedTokenJson(300, "<|end|>", true)};
  return file;
}

struct Edit {
  RejectionCode code;
  std::string where;  // of the first refusal
  std::function<void(Json&)> apply;
};

void ExpectRefused(const std::vector<Edit>& edits) {
  for (const Edit& edit : edits) {
    Json file = WithTwoMerges();
    edit.apply(file);
    const std::vector<Rejection> refusals = Refusals(file.dump());
    ASSERT_FALSE(refusals.empty()) << edit.where << " was accepted";
    EXPECT_EQ(refusals[0].code, edit.code) << Describe(refusals[0]);
    EXPECT_EQ(refusals[0].where, "tokenizer.json: " + edit.where)
        << Describe(refusals[0]);
  }
}

TEST(TokenizerHostileTest, TheUneditedFileIsAccepted) {
  EXPECT_TRUE(Refusals(WithTwoMerges().dump()).empty());
}

TEST(TokenizerHostileTest, UnsupportedModelsAreRefusedByKey) {
  ExpectRefused({
      {kUnsupported, "version", [](Json& f) { f["version"] = "2.0"; }},
      {kUnsupported, "truncation",
       [](Json& f) { f["truncation"] = {{"max_length", 5}}; }},
      {kUnsupported, "padding", [](Json& f) { f["padding"] = 1; }},
      {kUnsupported, "model.type",
       [](Json& f) { f["model"]["type"] = "Unigram"; }},
      {kUnsupported, "model.type", [](Json& f) { f["model"].erase("type"); }},
      {kUnsupported, "model.dropout",
       [](Json& f) { f["model"]["dropout"] = 0.1; }},
      {kUnsupported, "model.byte_fallback",
       [](Json& f) { f["model"]["byte_fallback"] = true; }},
      {kUnsupported, "model.continuing_subword_prefix",
       [](Json& f) { f["model"]["continuing_subword_prefix"] = "##"; }},
      {kUnsupported, "model.end_of_word_suffix",
       [](Json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }},
      {kInvalid, "model.ignore_merges",
       [](Json& f) { f["model"]["ignore_merges"] = "yes"; }},
      {kUnsupported, "model.vocab",
       [](Json& f) {
         f["model"]["vocab"].erase("a");
         f["model"]["merges"] = Json::array();
       }},
  });
}

TEST(TokenizerHostileTest, UnsupportedStepsAreRefusedByKey) {
  const std::string steps = "pre_tokenizer.pretokenizers";
  const auto step = [](Json& f, int i) -> Json& {
    return f["pre_tokenizer"]["pretokenizers"][i];
  };
  ExpectRefused({
      {kUnsupported, "normalizer.type",
       [](Json& f) { f["normalizer"]["type"] = "NFKC"; }},
      {kUnsupported, "normalizer.normalizers[1].type",
       [](Json& f) {
         f["normalizer"] = {
             {"type", "Sequence"},
             {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}};
       }},
      {kUnsupported, "pre_tokenizer.type",
       [](Json& f) { f["pre_tokenizer"] = nullptr; }},
      {kUnsupported, "pre_tokenizer.type",
       [](Json& f) { f["pre_tokenizer"]["type"] = "Whitespace"; }},
      {kUnsupported, steps,
       [=](Json& f) { f["pre_tokenizer"]["pretokenizers"].erase(0); }},
      {kUnsupported, steps + "[0].behavior",
       [=](Json& f) { step(f, 0)["behavior"] = "Removed"; }},
      {kUnsupported, steps + "[0].invert",
       [=](Json& f) { step(f, 0)["invert"] = true; }},
      {kUnsupported, steps + "[0].pattern.String",
       [=](Json& f) { step(f, 0)["pattern"] = {{"String", " "}}; }},
      {kInvalid, steps + "[0].pattern.Regex",
       [=](Json& f) { step(f, 0)["pattern"]["Regex"] = 7; }},
      {kInvalid, steps + "[0].pattern.Regex",
       [=](Json& f) { step(f, 0)["pattern"]["Regex"] = "(a"; }},
      {kUnsupported, steps + "[0].pattern.Regex",
       [=](Json& f) { step(f, 0)["pattern"]["Regex"] = "\\w+"; }},
      {kUnsupported, steps + "[1].add_prefix_space",
       [=](Json& f) { step(f, 1)["add_prefix_space"] = true; }},
      {kUnsupported, steps + "[1].use_regex",
       [=](Json& f) { step(f, 1).erase("use_regex"); }},
      {kUnsupported, "post_processor.type",
       [](Json& f) { f["post_processor"] = {{"type", "BertProcessing"}}; }},
      {kUnsupported, "post_processor.single[1].SpecialToken",
       [](Json& f) {
         f["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single",
                                 {{{"Sequence", {{"id", "A"}}}},
                                  {{"SpecialToken", {{"id", "<|end|>"}}}}}}};
       }},
      {kUnsupported, "decoder.type", [](Json& f) { f.erase("decoder"); }},
      {kUnsupported, "decoder.type",
       [](Json& f) { f["decoder"]["type"] = "WordPiece"; }},
  });
}

TEST(TokenizerHostileTest, PostProcessorsThatAddNothingAreAccepted) {
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
  const Json plain = {
      {"type", "TemplateProcessing"},
      {"single", Json::array({{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}})}};
  for (const Json& processor :
       {byte_level, plain,
        Json{{"type", "Sequence"}, {"processors", {byte_level, plain}}}}) {
    Json file = WithTwoMerges();
    file["post_processor"] = processor;
    EXPECT_TRUE(Refusals(file.dump()).empty()) << processor;
  }
}

TEST(TokenizerHostileTest, BrokenVocabulariesAreRefusedWithTheToken) {
  const auto vocab = [](Json& f) -> Json& { return f["model"]["vocab"]; };
  ExpectRefused({
      {kInvalid, "model.vocab[\"x y\"]",
       [=](Json& f) { vocab(f)["x y"] = 400; }},
      {kInvalid, "model.vocab[\"\u4E2D\"]",
       [=](Json& f) { vocab(f)["\u4E2D"] = 400; }},
      {kInvalid, "model.vocab[\"xy\"]", [=](Json& f) { vocab(f)["xy"] = -1; }},
      {kInvalid, "model.vocab[\"xy\"]",
       [=](Json& f) { vocab(f)["xy"] = 1 << 24; }},
      {kInvalid, "model.vocab[\"xy\"]",
       [=](Json& f) { vocab(f)["xy"] = UINT64_MAX; }},
      {kInvalid, "model.vocab[\"xy\"]",
       [=](Json& f) { vocab(f)["xy"] = 400.0; }},
      {kInvalid, "model.vocab[\"xy\"]",
       [=](Json& f) { vocab(f)["xy"] = "400"; }},
      {kInvalid, "model.vocab[\"xy\"]",
       [=](Json& f) { vocab(f)["xy"] = {{"id", {1, 2}}}; }},
      {kInvalid, "model.vocab[\"\"]", [=](Json& f) { vocab(f)[""] = 400; }},
      {kInvalid, "id 97", [=](Json& f) { vocab(f)["xy"] = 97; }},
      {kInvalid, "id 300", [=](Json& f) { vocab(f)["xy"] = 300; }},
      // The added token itself, but spelled: it would be in the model too.
      {kInvalid, "id 300",
       [=](Json& f) {
         f["added_tokens"][0]["content"] = "x y";
         vocab(f)[Spell("x y")] = 300;
       }},
      {kInvalid, "model.vocab[\"<|end|>\"]",
       [=](Json& f) { vocab(f)["<|end|>"] = 301; }},
      {kInvalid, "model.vocab",
       [=](Json& f) { vocab(f) = Json::array({"a", "b"}); }},
      {kInvalid, "model.vocab", [=](Json& f) { f["model"].erase("vocab"); }},
  });
}

TEST(TokenizerHostileTest, BrokenMergesAreRefusedWithTheirIndex) {
  const auto merges = [](Json& f) -> Json& { return f["model"]["merges"]; };
  ExpectRefused({
      {kInvalid, "model.merges[2]",
       [=](Json& f) { merges(f).push_back({"a", "zz"}); }},
      {kInvalid, "model.merges[2]",
       [=](Json& f) { merges(f).push_back({"\u4E2D", "a"}); }},
      {kInvalid, "model.merges[2]",
       [=](Json& f) { merges(f).push_back({"b", "b"}); }},
      {kInvalid, "model.merges[2]",
       [=](Json& f) { merges(f).push_back({"a", "b"}); }},
      {kInvalid, "model.merges[2]",
       [=](Json& f) { merges(f).push_back("ab"); }},
      {kInvalid, "model.merges[2]",
       [=](Json& f) { merges(f).push_back("a b c"); }},
      {kInvalid, "model.merges[2]",
       [=](Json& f) { merges(f).push_back("a "); }},
      {kInvalid, "model.merges[2]",
       [=](Json& f) { merges(f).push_back({"a"}); }},
      {kInvalid, "model.merges[2]",
       [=](Json& f) { merges(f).push_back({"a", "b", "c"}); }},
      {kInvalid, "model.merges[2][1]",
       [=](Json& f) { merges(f).push_back({"a", 7}); }},
      {kInvalid, "model.merges[2][0]",
       [=](Json& f) { merges(f).push_back({{{"a", 1}}, "b"}); }},
      {kInvalid, "model.merges[2]", [=](Json& f) { merges(f).push_back(7); }},
      {kInvalid, "model.merges[2]",
       [=](Json& f) { merges(f).push_back({{"a", "b"}}); }},
      {kInvalid, "model.merges", [=](Json& f) { merges(f) = "a b"; }},
      {kInvalid, "model.merges", [=](Json& f) { f["model"].erase("merges"); }},
  });
}

TEST(TokenizerHostileTest, BrokenAddedTokensAreRefusedWithTheirIndex) {
  const auto added = [](Json& f) -> Json& { return f["added_tokens"]; };
  const auto add = [=](int32_t id, std::string content, std::string key,
                       Json value) {
    return [=](Json& f) {
      Json token = AddedTokenJson(id, content, true);
      if (!key.empty()) token[key] = value;
      added(f).push_back(token);
    };
  };
  const std::string second = "added_tokens[1].";
  ExpectRefused({
      {kUnsupported, second + "lstrip", add(301, "x", "lstrip", true)},
      {kUnsupported, second + "rstrip", add(301, "x", "rstrip", true)},
      {kUnsupported, second + "single_word",
       add(301, "x", "single_word", true)},
      {kUnsupported, second + "normalized", add(301, "x", "normalized", true)},
      {kInvalid, second + "special", add(301, "x", "special", 1)},
      {kInvalid, second + "id", add(301, "x", "id", -1)},
      {kInvalid, second + "id", add(301, "x", "id", 1 << 24)},
      {kInvalid, second + "id", add(301, "x", "id", "301")},
      {kInvalid, second + "id", add(301, "x", "id", nullptr)},
      {kInvalid, second + "content", add(301, "x", "content", 7)},
      {kInvalid, second + "content", add(301, "", "", {})},
      {kInvalid, second + "content", add(301, std::string(5000, 'x'), "", {})},
      {kInvalid, second + "content", add(301, "<|end|>", "", {})},
      {kInvalid, second + "id", add(300, "other", "", {})},
      {kInvalid, second + "id", add(300, "<|end|>", "", {})},
      {kInvalid, "id 97", add(97, "other", "", {})},
      {kInvalid, "added_tokens", [=](Json& f) { added(f) = Json::object(); }},
      {kInvalid, "added_tokens[1]", [=](Json& f) { added(f).push_back(7); }},
  });
}

TEST(TokenizerHostileTest, TheConfigMayNotContradictTheTokenizer) {
  const std::string file = WithTwoMerges().dump();
  const auto decoder = [](const std::string& key, int32_t id,
                          const std::string& content, bool special) {
    return Json{{"added_tokens_decoder",
                 {{key, AddedTokenJson(id, content, special)}}}};
  };
  const std::string place = "tokenizer_config.json: added_tokens_decoder.";
  const std::pair<Json, std::string> cases[] = {
      {decoder("300", 300, "<|other|>", true), place + "\"300\".id"},
      {decoder("301", 301, "<|end|>", true), place + "\"301\".content"},
      {decoder("300", 300, "<|end|>", false), place + "\"300\".special"},
      {decoder("0300", 300, "<|end|>", true), place + "\"0300\".id"},
      {decoder("-1", -1, "x", true), place + "\"-1\".id"},
      {decoder("16777216", 0, "x", true), place + "\"16777216\".id"},
      {decoder("", 0, "x", true), place + "\"\".id"},
      {decoder("99999999999999999999", 0, "x", true),
       place + "\"99999999999999999999\".id"},
      {Json{{"added_tokens_decoder", 3}},
       "tokenizer_config.json: added_tokens_decoder"},
      {Json{{"eos_token", "<|nowhere|>"}}, "tokenizer_config.json: eos_token"},
      {Json{{"eos_token", 3}}, "tokenizer_config.json: eos_token"},
      {Json{{"eos_token", Json::object()}},
       "tokenizer_config.json: eos_token.content"},
      {Json{{"add_bos_token", true}}, "tokenizer_config.json: add_bos_token"},
      {Json{{"add_prefix_space", true}},
       "tokenizer_config.json: add_prefix_space"},
      {Json(7), "tokenizer_config.json"},
  };
  for (const auto& [config, where] : cases) {
    const std::vector<Rejection> refusals = Refusals(file, config.dump());
    ASSERT_FALSE(refusals.empty()) << config << " was accepted";
    EXPECT_EQ(refusals[0].where, where);
  }
}

TEST(TokenizerHostileTest, WhatIsNotJsonIsRefusedWithItsByte) {
  for (const std::string& file :
       {std::string("{"), std::string("nonsense"), std::string("{\"a\": NaN}"),
        std::string("{\"a\": 1e999}"), std::string("{\"a\": 01}"),
        std::string("{\"a\": \"\xFF\"}"), std::string("{\"a\": \"\\ud800\"}"),
        std::string("{} {}"), std::string("{\"a\": \"\x01\"}"),
        std::string("\0", 1), std::string("{\"a\": 1,}")}) {
    const std::vector<Rejection> refusals = Refusals(file);
    ASSERT_EQ(refusals.size(), 1u) << file;
    EXPECT_EQ(refusals[0].code, kInvalid);
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
  Json file = ByteTokenizerJson();
  AddMerge(&file, "a", "a", 256);
  AddMerge(&file, "aa", "aa", 257);
  AddMerge(&file, "aaaa", "aaaa", 258);
  file["added_tokens"] = {
      AddedTokenJson(300, std::string(1000, 'a') + "b", true)};
  const auto tokenizer = ParseOrThrow(file);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(EncodeOrThrow(*tokenizer, std::string(100000, 'a')),
            Ids(12500, 258));
  std::string marks;
  for (int i = 0; i < 100000; ++i) marks += "\u0301\u0323";
  EXPECT_EQ(EncodeOrThrow(*tokenizer, marks).size(), 400000u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(TokenizerHostileTest, AHostileRegexEndsInAnError) {
  Json file = ByteTokenizerJson("(?:a+)+[bc]");
  const auto tokenizer = ParseOrThrow(file);
  EXPECT_EQ(EncodeOrThrow(*tokenizer, "aab"), (Ids{'a', 'a', 'b'}));
  const auto ids = tokenizer->Encode(std::string(60, 'a'));
  ASSERT_FALSE(ids.has_value());
  const auto& rejections = std::get<Rejections>(ids.error());
  EXPECT_TRUE(rejections.Has(RejectionCode::kRequestInvalid));
}

}  // namespace
}  // namespace signet::text
