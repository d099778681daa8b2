#pragma once
// The tokens of a tokenizer by id and, those of the model, by bytes.
// Immutable; any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/file_issues.h"
#include "text/tokenizer_document.h"

namespace signet::text {

class Vocabulary {
 public:
  /// From model.vocab and the added tokens. Complains to `issues` about
  /// spellings outside the byte alphabet and about ids or tokens that repeat.
  static Vocabulary Make(
      const std::vector<TokenizerDocument::VocabEntry>& entries,
      const std::vector<AddedToken>& added, FileIssues* issues);

  /// Empty for an id without a token. Valid as long as the vocabulary.
  std::string_view Bytes(int32_t id) const {
    if (id < 0 || id >= id_bound()) return {};
    const std::string_view all = bytes_;
    return all.substr(begins_[id], begins_[id + 1] - begins_[id]);
  }
  bool IsSpecial(int32_t id) const {
    return id >= 0 && id < id_bound() && special_[id];
  }
  /// One past the greatest id that has a token.
  int32_t id_bound() const { return static_cast<int32_t>(special_.size()); }

  /// The token of the model that stands for `bytes`.
  std::optional<int32_t> Find(std::string_view bytes) const;

 private:
  struct Token;

  Vocabulary() = default;
  void Lay(const std::vector<Token>& tokens);
  void Index(const std::vector<Token>& tokens, FileIssues* issues);

  std::string bytes_;             // of all tokens, by ascending id
  std::vector<uint32_t> begins_;  // [id_bound + 1], in bytes_
  std::vector<bool> special_;     // [id_bound]
  std::vector<int32_t> index_;    // open addressing by hash of the bytes
};

}  // namespace signet::text
