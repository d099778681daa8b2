#pragma once
// Byte-level BPE as `tokenizer.json` states it (models: Qwen3.5/3.6): added
// tokens are cut out of the raw text first, leftmost-longest; the rest is
// NFC-normalised, split by the pre-tokenizer regex and merged by rank.
// Immutable after Parse; Encode may be called from any thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace signet::text {

class Tokenizer {
 public:
  /// `tokenizer_json` is the content of tokenizer.json; the content of
  /// tokenizer_config.json may be empty (it adds tokens and the eos token).
  /// Hostile input ends in kTokenizerInvalid or kTokenizerUnsupported with the
  /// key that is wrong.
  static Result<std::shared_ptr<const Tokenizer>> Parse(
      std::string_view tokenizer_json, std::string_view tokenizer_config_json);
  ~Tokenizer();

  /// Whether the name of a special token in a text is that token.
  enum class Specials { kAreTokens, kAreText };

  /// Ids of `text`; added tokens in it are recognised. No token is added. Time
  /// n log n at worst. kRequestInvalid for text that is not UTF-8 (the byte
  /// offset is in `where`), has 2^31 bytes or more, or on which the regex
  /// exceeds its limits.
  Result<std::vector<int32_t>> Encode(
      std::string_view text, Specials specials = Specials::kAreTokens) const;

  /// The added token of this name.
  std::optional<int32_t> FindAdded(std::string_view name) const;

  /// The bytes a token stands for, an added token's literal text included;
  /// empty for an id without a token. Valid as long as the tokenizer.
  std::string_view TokenBytes(int32_t id) const;
  bool HasToken(int32_t id) const;
  /// One past the greatest id that has a token.
  int32_t id_bound() const;
  /// Special tokens (e.g. end of text) are not shown in generated text.
  bool IsSpecial(int32_t id) const;
  /// The eos token of tokenizer_config.json, as ids; may be empty.
  std::span<const int32_t> eos_ids() const;

 private:
  struct Tables;
  explicit Tokenizer(std::unique_ptr<const Tables> tables);
  std::unique_ptr<const Tables> tables_;
};

}  // namespace signet::text
