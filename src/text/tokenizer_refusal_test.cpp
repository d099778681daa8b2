// Well-formed JSON that is not a tokenizer this engine implements, or none that
// makes sense. Each is refused by the key that is wrong.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer.h"
#include "text/tokenizer_testing.h"

namespace signet::text {
namespace {

using Json = nlohmann::json;

constexpr RejectionCode kInvalid = RejectionCode::kTokenizerInvalid;
constexpr RejectionCode kUnsupported = RejectionCode::kTokenizerUnsupported;

// One edit of a good file and the first refusal that it must lead to.
struct Edit {
  RejectionCode code;
  std::string where;
  std::string pointer;  // JSON pointer to what is set
  std::string value;    // JSON text; empty: the key is removed
};

void Apply(const Edit& edit, Json* file) {
  const Json::json_pointer pointer(edit.pointer);
  if (edit.value.empty()) {
    file->at(pointer.parent_pointer()).erase(pointer.back());
  } else {
    (*file)[pointer] = Json::parse(edit.value);
  }
}

void ExpectRefused(const std::vector<Edit>& edits) {
  for (const Edit& edit : edits) {
    Json file = WithTwoMerges();
    Apply(edit, &file);
    const std::vector<Rejection> refusals = Refusals(file.dump());
    ASSERT_FALSE(refusals.empty())
        << edit.pointer << " = " << edit.value << " was accepted";
    EXPECT_EQ(refusals[0].code, edit.code) << Describe(refusals[0]);
    EXPECT_EQ(refusals[0].where, "tokenizer.json: " + edit.where)
        << Describe(refusals[0]);
  }
}

TEST(TokenizerRefusalTest, TheUneditedFileIsAccepted) {
  EXPECT_TRUE(Refusals(WithTwoMerges().dump()).empty());
}

TEST(TokenizerRefusalTest, UnsupportedModelsAreRefusedByKey) {
  ExpectRefused({
      {kUnsupported, "version", "/version", "\"2.0\""},
      {kUnsupported, "truncation", "/truncation", R"({"max_length": 5})"},
      {kUnsupported, "padding", "/padding", "1"},
      {kUnsupported, "model.type", "/model/type", "\"Unigram\""},
      {kUnsupported, "model.type", "/model/type", ""},
      {kUnsupported, "model.dropout", "/model/dropout", "0.1"},
      {kUnsupported, "model.byte_fallback", "/model/byte_fallback", "true"},
      {kUnsupported, "model.continuing_subword_prefix",
       "/model/continuing_subword_prefix", "\"##\""},
      {kUnsupported, "model.end_of_word_suffix", "/model/end_of_word_suffix",
       "\"</w>\""},
      {kInvalid, "model.ignore_merges", "/model/ignore_merges", "\"yes\""},
      {kUnsupported, "model.vocab", "/model/vocab/d", ""},
  });
}

TEST(TokenizerRefusalTest, OnlyBytesThatTextCanHaveNeedATokenOfTheirOwn) {
  Json file = WithTwoMerges();
  for (const char* byte : {"\xC0", "\xC1", "\xF5", "\xFF"}) {
    file["model"]["vocab"].erase(Spell(byte));
  }
  EXPECT_TRUE(Refusals(file.dump()).empty());
  file["model"]["vocab"].erase(Spell("\xF4"));
  EXPECT_FALSE(Refusals(file.dump()).empty());
}

TEST(TokenizerRefusalTest, UnsupportedStepsAreRefusedByKey) {
  const std::string steps = "pre_tokenizer.pretokenizers";
  const std::string at = "/pre_tokenizer/pretokenizers";
  ExpectRefused({
      {kUnsupported, "normalizer.type", "/normalizer/type", "\"NFKC\""},
      {kUnsupported, "normalizer.normalizers", "/normalizer",
       R"({"type": "Sequence",
           "normalizers": [{"type": "NFC"}, {"type": "NFC"}]})"},
      {kUnsupported, "normalizer.normalizers[0].type", "/normalizer",
       R"({"type": "Sequence", "normalizers": [{"type": "Lowercase"}]})"},
      {kUnsupported, "pre_tokenizer.type", "/pre_tokenizer", "null"},
      {kUnsupported, "pre_tokenizer.type", "/pre_tokenizer/type",
       "\"Whitespace\""},
      {kUnsupported, steps, at, "[{}]"},
      {kInvalid, steps, at, "{}"},
      {kUnsupported, steps + "[0].type", at + "/0/type", "\"Digits\""},
      {kUnsupported, steps + "[0].behavior", at + "/0/behavior", "\"Removed\""},
      {kUnsupported, steps + "[0].invert", at + "/0/invert", "true"},
      {kUnsupported, steps + "[0].pattern.String", at + "/0/pattern",
       R"({"String": " "})"},
      {kInvalid, steps + "[0].pattern.Regex", at + "/0/pattern/Regex", "7"},
      {kInvalid, steps + "[0].pattern.Regex", at + "/0/pattern/Regex",
       "\"(a\""},
      {kUnsupported, steps + "[0].pattern.Regex", at + "/0/pattern/Regex",
       R"("\\w+")"},
      {kUnsupported, steps + "[1].type", at + "/1/type", "\"Metaspace\""},
      {kUnsupported, steps + "[1].add_prefix_space", at + "/1/add_prefix_space",
       "true"},
      {kUnsupported, steps + "[1].use_regex", at + "/1/use_regex", ""},
      {kUnsupported, "post_processor.type", "/post_processor",
       R"({"type": "BertProcessing"})"},
      {kUnsupported, "post_processor.single[1].SpecialToken", "/post_processor",
       R"({"type": "TemplateProcessing",
           "single": [{"Sequence": {"id": "A"}},
                      {"SpecialToken": {"id": "<|end|>"}}]})"},
      {kUnsupported, "decoder.type", "/decoder", ""},
      {kUnsupported, "decoder.type", "/decoder/type", "\"WordPiece\""},
  });
}

TEST(TokenizerRefusalTest, PostProcessorsThatAddNothingAreAccepted) {
  for (const char* processor :
       {R"({"type": "ByteLevel", "add_prefix_space": true})",
        R"({"type": "TemplateProcessing", "single": [{"Sequence": {}}]})",
        R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}]})"}) {
    Json file = WithTwoMerges();
    file["post_processor"] = Json::parse(processor);
    EXPECT_TRUE(Refusals(file.dump()).empty()) << processor;
  }
}

TEST(TokenizerRefusalTest, BrokenVocabulariesAreRefusedWithTheToken) {
  const std::string xy = "model.vocab[\"xy\"]";
  const std::string at = "/model/vocab/";
  ExpectRefused({
      {kInvalid, "model.vocab[\"x y\"]", at + "x y", "400"},
      {kInvalid, "model.vocab[\"\u4E2D\"]", at + "\u4E2D", "400"},
      {kInvalid, "model.vocab[\"\"]", at, "400"},
      {kInvalid, xy, at + "xy", "-1"},
      {kInvalid, xy, at + "xy", "16777216"},
      {kInvalid, xy, at + "xy", "18446744073709551615"},
      {kInvalid, xy, at + "xy", "99999999999999999999"},
      {kInvalid, xy, at + "xy", "400.0"},
      {kInvalid, xy, at + "xy", "\"400\""},
      {kInvalid, xy, at + "xy", R"({"id": [1, {"a": 2}]})"},
      {kInvalid, xy, at + "xy", "null"},
      {kInvalid, "id 97", at + "xy", "97"},
      {kInvalid, "id 300", at + "xy", "300"},
      {kInvalid, "model.vocab[\"<|end|>\"]", at + "<|end|>", "301"},
      {kInvalid, "model.vocab", "/model/vocab", R"(["a", "b"])"},
      {kInvalid, "model.vocab", "/model/vocab", ""},
  });
}

TEST(TokenizerRefusalTest, BrokenMergesAreRefusedWithTheirIndex) {
  const std::string where = "model.merges[2]";
  const std::string end = "/model/merges/-";
  ExpectRefused({
      {kInvalid, where, end, R"(["a", "zz"])"},
      {kInvalid, where, end, R"(["\u4E2D", "a"])"},
      {kInvalid, where, end, R"(["", "a"])"},
      {kInvalid, where, end, R"(["b", "b"])"},
      {kInvalid, where, end, R"(["a", "b"])"},
      {kInvalid, where, end, R"("ab")"},
      {kInvalid, where, end, R"("a b c")"},
      {kInvalid, where, end, R"("a ")"},
      {kInvalid, where, end, R"(["a"])"},
      {kInvalid, where, end, R"(["a", "b", "c"])"},
      {kInvalid, where + "[1]", end, R"(["a", 7])"},
      {kInvalid, where + "[0]", end, R"([{"a": ["b"]}, "b"])"},
      {kInvalid, where, end, "7"},
      {kInvalid, where, end, R"({"a": "b"})"},
      {kInvalid, "model.merges", "/model/merges", R"("a b")"},
      {kInvalid, "model.merges", "/model/merges", ""},
  });
}

TEST(TokenizerRefusalTest, BrokenAddedTokensAreRefusedWithTheirIndex) {
  const std::string first = "added_tokens[0].";
  const std::string at = "/added_tokens/0/";
  ExpectRefused({
      {kUnsupported, first + "lstrip", at + "lstrip", "true"},
      {kUnsupported, first + "rstrip", at + "rstrip", "true"},
      {kUnsupported, first + "single_word", at + "single_word", "true"},
      {kUnsupported, first + "normalized", at + "normalized", "true"},
      {kInvalid, first + "special", at + "special", "1"},
      {kInvalid, first + "special", at + "special", ""},
      {kInvalid, first + "id", at + "id", "-1"},
      {kInvalid, first + "id", at + "id", "16777216"},
      {kInvalid, first + "id", at + "id", "\"300\""},
      {kInvalid, first + "id", at + "id", ""},
      {kInvalid, first + "content", at + "content", "7"},
      {kInvalid, first + "content", at + "content", "\"\""},
      {kInvalid, first + "content", at + "content",
       '"' + std::string(5000, 'x') + '"'},
      {kInvalid, "id 97", at + "id", "97"},
      {kInvalid, "added_tokens", "/added_tokens", "{}"},
      {kInvalid, "added_tokens[1]", "/added_tokens/-", "7"},
  });
}

TEST(TokenizerRefusalTest, AddedTokensMayNotContradictEachOther) {
  const std::string file = WithTwoMerges().dump();
  const auto second = [&](int32_t id, std::string_view content) {
    Json json = Json::parse(file);
    AddAdded(&json, id, content, true);
    const std::vector<Rejection> refusals = Refusals(json.dump());
    return refusals.empty() ? "nothing" : refusals[0].where;
  };
  EXPECT_EQ(second(301, "<|end|>"), "tokenizer.json: added_tokens[1].content");
  EXPECT_EQ(second(300, "<|no|>"), "tokenizer.json: added_tokens[1].id");
  EXPECT_EQ(second(300, "<|end|>"), "tokenizer.json: added_tokens[1].id");
  EXPECT_EQ(second(301, "<|no|>"), "nothing");
  // A token that is added and, spelled, also in the vocabulary with that id.
  Json spelled = Json::parse(file);
  spelled["model"]["vocab"][Spell("x y")] = 301;
  AddAdded(&spelled, 301, "x y", true);
  const std::vector<Rejection> refusals = Refusals(spelled.dump());
  ASSERT_FALSE(refusals.empty());
  EXPECT_EQ(refusals[0].where, "tokenizer.json: id 301");
}

TEST(TokenizerRefusalTest, TheConfigMayNotContradictTheTokenizer) {
  const std::string file = WithTwoMerges().dump();
  const auto refused_at = [&](const Json& config) {
    const std::vector<Rejection> refusals = Refusals(file, config.dump());
    return refusals.empty() ? "nothing" : refusals[0].where;
  };
  const auto decoder = [&](const std::string& key, const std::string& content,
                           bool special) {
    Json config;
    config["added_tokens_decoder"][key] = AddedTokenJson(0, content, special);
    return refused_at(config);
  };
  const std::string place = "tokenizer_config.json: added_tokens_decoder.";
  EXPECT_EQ(decoder("300", "<|end|>", true), "nothing");
  EXPECT_EQ(decoder("300", "<|other|>", true), place + "\"300\".id");
  EXPECT_EQ(decoder("301", "<|end|>", true), place + "\"301\".content");
  EXPECT_EQ(decoder("300", "<|end|>", false), place + "\"300\".special");
  for (const std::string key :
       {"0300", "-1", "16777216", "", "+1", "1x", "99999999999999999999"}) {
    EXPECT_EQ(decoder(key, "<x>", true), place + '"' + key + "\".id");
  }
  const std::pair<const char*, std::string> cases[] = {
      {R"({"added_tokens_decoder": 3})", ": added_tokens_decoder"},
      {R"({"eos_token": "<|nowhere|>"})", ": eos_token"},
      {R"({"eos_token": 3})", ": eos_token"},
      {R"({"eos_token": {}})", ": eos_token.content"},
      {R"({"add_bos_token": true})", ": add_bos_token"},
      {R"({"add_eos_token": true})", ": add_eos_token"},
      {R"({"add_prefix_space": true})", ": add_prefix_space"},
      {"7", ""},
  };
  for (const auto& [config, where] : cases) {
    EXPECT_EQ(refused_at(Json::parse(config)), "tokenizer_config.json" + where);
  }
}

}  // namespace
}  // namespace signet::text
