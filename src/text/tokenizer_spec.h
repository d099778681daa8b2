#pragma once
// What a tokenizer file asks for, once every key that this engine does not
// implement has been refused by name. Values.

#include <optional>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/file_issues.h"
#include "text/tokenizer_document.h"

namespace signet::text {

struct TokenizerSpec {
  enum class Normalizer { kNone, kNfc };

  Normalizer normalizer = Normalizer::kNone;
  std::string split_regex;     // as the file has it
  bool ignore_merges = false;  // a piece that is a token is not merged
  std::vector<AddedToken> added_tokens;
  std::optional<std::string> eos_token;  // content
};

inline constexpr std::string_view kTokenizerFile = "tokenizer.json";
inline constexpr std::string_view kTokenizerConfigFile =
    "tokenizer_config.json";

/// The spec of two read files. It holds only when nothing was added to
/// `issues`: kTokenizerUnsupported for what is not implemented,
/// kTokenizerInvalid for what no tokenizer could mean.
TokenizerSpec CheckTokenizerSpec(const TokenizerDocument& tokenizer,
                                 const TokenizerDocument& config,
                                 FileIssues* issues);

}  // namespace signet::text
