#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/tokenizer_testing.h"
#include "text/utf8.h"

namespace signet::text {
namespace {

constexpr int32_t kEnd = 300;    // special
constexpr int32_t kThink = 301;  // not special

std::shared_ptr<const Tokenizer> MakeTokenizer() {
  nlohmann::json file = ByteTokenizerJson();
  AddMerge(&file, "\xE4", "\xB8", 256);
  AddMerge(&file, "\xE4\xB8", "\xAD", 257);
  AddMerge(&file, "\xAD", "\xE4", 258);  // an end and a beginning
  AddMerge(&file, " ", "\xF0", 259);
  AddAdded(&file, kEnd, "<|end|>", true);
  AddAdded(&file, kThink, "<th\u00EFnk>", false);
  return ParseOrThrow(file);
}

std::string Decode(const Tokenizer& tokenizer, const Ids& ids,
                   StreamDecoder::Special special) {
  StreamDecoder decoder(&tokenizer, special);
  std::string text;
  for (const int32_t id : ids) text += decoder.Push(id);
  return text + decoder.Finish();
}

std::string DecodeBytes(const Tokenizer& tokenizer, std::string_view bytes) {
  Ids ids;
  for (const char byte : bytes) ids.push_back(static_cast<uint8_t>(byte));
  return Decode(tokenizer, ids, StreamDecoder::Special::kShow);
}

TEST(StreamDecoderTest, ACharacterAppearsWithItsLastByte) {
  const auto tokenizer = MakeTokenizer();
  StreamDecoder decoder(tokenizer.get());
  EXPECT_EQ(decoder.Push('a'), "a");
  EXPECT_EQ(decoder.Push(256), "");
  EXPECT_EQ(decoder.Push(258), "\u4E2D");
  EXPECT_EQ(decoder.Push(0xB8), "");
  EXPECT_EQ(decoder.Push(0xAD), "\u4E2D");
  EXPECT_EQ(decoder.Push(259), " ");
  EXPECT_EQ(decoder.Push(0x9F), "");
  EXPECT_EQ(decoder.Push(0x98), "");
  EXPECT_EQ(decoder.Push(0x80), "\U0001F600");
  EXPECT_EQ(decoder.Finish(), "");
}

TEST(StreamDecoderTest, WhatCannotBecomeACharacterIsReplacedAtOnce) {
  const auto tokenizer = MakeTokenizer();
  StreamDecoder decoder(tokenizer.get());
  EXPECT_EQ(decoder.Push(0x80), "\uFFFD");
  EXPECT_EQ(decoder.Push(256), "");
  EXPECT_EQ(decoder.Push('a'), "\uFFFDa");
  EXPECT_EQ(decoder.Push(0xED), "");
  EXPECT_EQ(decoder.Push(0xA0), "\uFFFD\uFFFD");  // never a surrogate
}

TEST(StreamDecoderTest, ReplacesByMaximalSubparts) {
  const auto tokenizer = MakeTokenizer();
  // Tables 3-8 to 3-11 of the Unicode standard.
  const std::pair<std::string, std::string> cases[] = {
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41",
       "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41",
       "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42",
       "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA\uFFFD\uFFFD\x42"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "\uFFFD\uFFFD\uFFFD\uFFFDA"},
      {"\xE1\x80", "\uFFFD"},
      {"\xF1\x80\x80", "\uFFFD"},
      {"\xF1\x80\x80\xF1", "\uFFFD\uFFFD"},
  };
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(DecodeBytes(*tokenizer, bytes), text);
  }
}

TEST(StreamDecoderTest, FinishReplacesWhatIsHeldAndLeavesNothing) {
  const auto tokenizer = MakeTokenizer();
  StreamDecoder decoder(tokenizer.get());
  EXPECT_EQ(decoder.Push(256), "");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
  EXPECT_EQ(decoder.Finish(), "");
  EXPECT_EQ(decoder.Push('a'), "a");
}

TEST(StreamDecoderTest, SpecialTokensAreHiddenOrShown) {
  const auto tokenizer = MakeTokenizer();
  const Ids ids = {'a', kEnd, kThink, 'b'};
  EXPECT_EQ(Decode(*tokenizer, ids, StreamDecoder::Special::kHide),
            "a<th\u00EFnk>b");
  EXPECT_EQ(Decode(*tokenizer, ids, StreamDecoder::Special::kShow),
            "a<|end|><th\u00EFnk>b");
}

TEST(StreamDecoderTest, AHiddenTokenDoesNotBreakACharacter) {
  const auto tokenizer = MakeTokenizer();
  const Ids ids = {256, kEnd, 0xAD};
  EXPECT_EQ(Decode(*tokenizer, ids, StreamDecoder::Special::kHide), "\u4E2D");
  EXPECT_EQ(Decode(*tokenizer, ids, StreamDecoder::Special::kShow),
            "\uFFFD<|end|>\uFFFD");
}

TEST(StreamDecoderTest, AnIdWithoutATokenAddsNothing) {
  const auto tokenizer = MakeTokenizer();
  EXPECT_EQ(Decode(*tokenizer, {'a', -1, 299, 1 << 30, 'b'},
                   StreamDecoder::Special::kShow),
            "ab");
}

TEST(StreamDecoderTest, CutAtEveryTokenItIsTheWhole) {
  const auto tokenizer = MakeTokenizer();
  const int32_t pool[] = {'a',  256,  257,  258,  259,  kThink, 0xC3, 0xA9,
                          0x80, 0xBF, 0xE4, 0xB8, 0xAD, 0xF0,   0x9F, 0x98,
                          0xED, 0xA0, 0xFF, 0xF4, 0x90, 0xE0,   kEnd};
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    Ids ids;
    std::string bytes;
    while (ids.size() < 12) {
      ids.push_back(pool[random() % std::size(pool)]);
      bytes += tokenizer->TokenBytes(ids.back());
    }
    // The whole, decoded from the front by the rule itself.
    std::string whole;
    for (std::string_view rest = bytes; !rest.empty();) {
      const Utf8Step step = ReadUtf8(rest);
      whole += step.kind == Utf8Step::Kind::kCharacter
                   ? rest.substr(0, step.length)
                   : "\uFFFD";
      rest.remove_prefix(step.length);
    }
    StreamDecoder decoder(tokenizer.get(), StreamDecoder::Special::kShow);
    std::string text;
    for (const int32_t id : ids) {
      const std::string shown = decoder.Push(id);
      ASSERT_EQ(FindInvalidUtf8(shown), std::string::npos);
      text += shown;
    }
    text += decoder.Finish();
    ASSERT_EQ(text, whole);
    ASSERT_EQ(DecodeBytes(*tokenizer, bytes), whole);
  }
}

}  // namespace
}  // namespace signet::text
