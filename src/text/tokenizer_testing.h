#pragma once
// A tokenizer file small enough to read, for the tests of this room: token b
// is byte b, and tests add tokens and merges from id 256 on.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/byte_alphabet.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace signet::text {

inline constexpr char kQwenRegex[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// `bytes` in the byte alphabet, as a vocabulary spells them.
inline std::string Spell(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) {
    AppendUtf8(AlphabetCharacter(static_cast<uint8_t>(byte)), &spelling);
  }
  return spelling;
}

/// tokenizer.json with the 256 bytes, no merges and no added tokens.
inline nlohmann::json ByteTokenizerJson(std::string_view regex = kQwenRegex) {
  const nlohmann::json byte_level = {{"type", "ByteLevel"},
                                     {"add_prefix_space", false},
                                     {"trim_offsets", false},
                                     {"use_regex", false}};
  nlohmann::json vocab = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(byte);
    vocab[Spell(std::string_view(&value, 1))] = byte;
  }
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", nlohmann::json::array()},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Split"},
               {"pattern", {{"Regex", regex}}},
               {"behavior", "Isolated"},
               {"invert", false}},
              byte_level}}}},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", ""},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", std::move(vocab)},
            {"merges", nlohmann::json::array()}}}};
}

/// Adds a merge of two byte strings and the token `id` that it makes.
inline void AddMerge(nlohmann::json* file, std::string_view left,
                     std::string_view right, int32_t id) {
  nlohmann::json& model = (*file)["model"];
  model["vocab"][Spell(left) + Spell(right)] = id;
  model["merges"].push_back({Spell(left), Spell(right)});
}

inline nlohmann::json AddedTokenJson(int32_t id, std::string_view content,
                                     bool special) {
  return {{"id", id},
          {"content", content},
          {"special", special},
          {"normalized", false},
          {"lstrip", false},
          {"rstrip", false},
          {"single_word", false}};
}

inline std::shared_ptr<const Tokenizer> ParseOrThrow(
    const nlohmann::json& file, std::string_view config = {}) {
  auto tokenizer = Tokenizer::Parse(file.dump(), config);
  if (!tokenizer) throw std::runtime_error(Describe(tokenizer.error()));
  return *std::move(tokenizer);
}

using Ids = std::vector<int32_t>;

inline Ids EncodeOrThrow(const Tokenizer& tokenizer, std::string_view text) {
  auto ids = tokenizer.Encode(text);
  if (!ids) throw std::runtime_error(Describe(ids.error()));
  return *std::move(ids);
}

}  // namespace signet::text
