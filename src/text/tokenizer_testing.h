#pragma once
// A tokenizer file small enough to read, for the tests of this room: token b
// is byte b, and tests add tokens and merges from id 256 on.

#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
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
  nlohmann::json file = nlohmann::json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": ""}, "behavior": "Isolated",
       "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
       "use_regex": false}]},
    "post_processor": null,
    "decoder": {"type": "ByteLevel", "add_prefix_space": false,
                "trim_offsets": false, "use_regex": false},
    "model": {"type": "BPE", "dropout": null, "unk_token": null,
              "continuing_subword_prefix": "", "end_of_word_suffix": null,
              "fuse_unk": false, "byte_fallback": false,
              "ignore_merges": false, "vocab": {}, "merges": []}})");
  file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = regex;
  nlohmann::json& vocab = file["model"]["vocab"];
  for (int byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(byte);
    vocab[Spell(std::string_view(&value, 1))] = byte;
  }
  return file;
}

/// Adds a merge of two byte strings and the token `id` that it makes.
inline void AddMerge(nlohmann::json* file, std::string_view left,
                     std::string_view right, int32_t id) {
  nlohmann::json& model = (*file)["model"];
  model["vocab"][Spell(left) + Spell(right)] = id;
  nlohmann::json pair = nlohmann::json::array();
  pair.push_back(Spell(left));
  pair.push_back(Spell(right));
  model["merges"].push_back(std::move(pair));
}

inline nlohmann::json AddedTokenJson(int32_t id, std::string_view content,
                                     bool special) {
  nlohmann::json token;
  token["id"] = id;
  token["content"] = content;
  token["special"] = special;
  for (const char* flag : {"normalized", "lstrip", "rstrip", "single_word"}) {
    token[flag] = false;
  }
  return token;
}

/// Adds an added token to the file.
inline void AddAdded(nlohmann::json* file, int32_t id, std::string_view content,
                     bool special) {
  (*file)["added_tokens"].push_back(AddedTokenJson(id, content, special));
}

inline std::shared_ptr<const Tokenizer> ParseOrThrow(
    const nlohmann::json& file, std::string_view config = {}) {
  auto tokenizer = Tokenizer::Parse(file.dump(), config);
  if (!tokenizer) throw std::runtime_error(Describe(tokenizer.error()));
  return *std::move(tokenizer);
}

/// Why a file is refused; empty when it is not.
inline std::vector<Rejection> Refusals(std::string_view file,
                                       std::string_view config = {}) {
  const auto tokenizer = Tokenizer::Parse(file, config);
  if (tokenizer) return {};
  return std::get<Rejections>(tokenizer.error()).list();
}

/// A good file for tests to break: ab is 256, abc 257, <|end|> 300.
inline nlohmann::json WithTwoMerges() {
  nlohmann::json file = ByteTokenizerJson();
  AddMerge(&file, "a", "b", 256);
  AddMerge(&file, "ab", "c", 257);
  AddAdded(&file, 300, "<|end|>", true);
  return file;
}

/// Processor time since it was made: a bound on it does not depend on what
/// else the machine does.
class CpuTimer {
 public:
  double Seconds() const {
    return static_cast<double>(std::clock() - begin_) / CLOCKS_PER_SEC;
  }

 private:
  std::clock_t begin_ = std::clock();
};

using Ids = std::vector<int32_t>;

inline Ids EncodeOrThrow(const Tokenizer& tokenizer, std::string_view text) {
  auto ids = tokenizer.Encode(text);
  if (!ids) throw std::runtime_error(Describe(ids.error()));
  return *std::move(ids);
}

}  // namespace signet::text
