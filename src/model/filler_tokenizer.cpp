#include "model/filler_tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "base/json_text.h"

namespace signet::model {
namespace {

/// The pre-tokenizer of Qwen3.5; without merges it only cuts the text.
constexpr const char* kPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

bool IsPrintable(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) ||
         byte >= 174;
}

/// The character that stands for a byte in byte-level vocabularies: printable
/// bytes stand for themselves, the others for U+0100 on, in order.
std::string ByteCharacter(int byte) {
  int code = byte;
  if (!IsPrintable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += IsPrintable(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | code >> 6),
          static_cast<char>(0x80 | (code & 0x3f))};
}

void AppendByteLevel(JsonText& json) {
  json.Field("type", "ByteLevel");
  json.Field("add_prefix_space", false);
  json.Field("trim_offsets", false);
  json.Field("use_regex", false);
}

void AppendPreTokenizer(JsonText& json) {
  json.Field("type", "Sequence");
  json.Array("pretokenizers", [&] {
    json.Object([&] {
      json.Field("type", "Split");
      json.Object("pattern", [&] { json.Field("Regex", kPattern); });
      json.Field("behavior", "Isolated");
      json.Field("invert", false);
    });
    json.Object([&] { AppendByteLevel(json); });
  });
}

void AppendModel(int64_t vocab, JsonText& json) {
  json.Field("type", "BPE");
  json.Field("dropout", nullptr);
  json.Field("unk_token", nullptr);
  json.Field("continuing_subword_prefix", "");
  json.Field("end_of_word_suffix", "");
  json.Field("fuse_unk", false);
  json.Field("byte_fallback", false);
  json.Field("ignore_merges", false);
  json.Array("merges", [] {});
  json.Object("vocab", [&] {
    for (int64_t id = 0; id < vocab; ++id) {
      json.Field(id < kNumByteTokens ? ByteCharacter(static_cast<int>(id))
                                     : fmt::format("<filler{}>", id),
                 id);
    }
  });
}

}  // namespace

std::string FillerTokenizerJson(int64_t vocab) {
  JsonText json;
  json.Object([&] {
    json.Field("version", "1.0");
    json.Field("truncation", nullptr);
    json.Field("padding", nullptr);
    json.Array("added_tokens", [] {});
    json.Object("normalizer", [&] { json.Field("type", "NFC"); });
    json.Object("pre_tokenizer", [&] { AppendPreTokenizer(json); });
    json.Object("post_processor", [&] { AppendByteLevel(json); });
    json.Object("decoder", [&] { AppendByteLevel(json); });
    json.Object("model", [&] { AppendModel(vocab, json); });
  });
  return std::move(json).Take() + "\n";
}

}  // namespace signet::model
