#include "model/filler_tokenizer.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

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

}  // namespace

std::string FillerTokenizerJson(int64_t vocab) {
  using nlohmann::ordered_json;
  const ordered_json byte_level = {{"type", "ByteLevel"},
                                   {"add_prefix_space", false},
                                   {"trim_offsets", false},
                                   {"use_regex", false}};
  const ordered_json split = {{"type", "Split"},
                              {"pattern", {{"Regex", kPattern}}},
                              {"behavior", "Isolated"},
                              {"invert", false}};
  ordered_json head = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", ordered_json::array()},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers", ordered_json::array({split, byte_level})}}},
      {"post_processor", byte_level},
      {"decoder", byte_level},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", ""},
        {"end_of_word_suffix", ""},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"merges", ordered_json::array()}}},
  };
  // The vocabulary is appended as text, in the order of its ids: a quarter of
  // a million keys are too many for an ordered object.
  std::string text = head.dump();
  text.resize(text.size() - 2);  // the braces of the model and of the file
  text += ",\"vocab\":{";
  for (int64_t id = 0; id < vocab; ++id) {
    const std::string token = id < kNumByteTokens
                                  ? ByteCharacter(static_cast<int>(id))
                                  : fmt::format("<filler{}>", id);
    fmt::format_to(std::back_inserter(text), "{}{}:{}", id > 0 ? "," : "",
                   ordered_json(token).dump(), id);
  }
  return text + "}}}\n";
}

}  // namespace signet::model
