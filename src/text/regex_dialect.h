#pragma once
// Tokenizer files hold regular expressions in Oniguruma's Ruby dialect; this
// engine matches with PCRE2. The constructs that mean the same in both, or can
// be rewritten to, pass; every other one is refused by name. Stateless.

#include <optional>
#include <string>
#include <string_view>

#include "text/file_issues.h"

namespace signet::text {

/// `source`, which is UTF-8, for PCRE2 with UTF, UCP and LF as newline. In
/// particular `\s` and `\S` become Unicode White_Space, which PCRE2's own are
/// not. Nothing, and kTokenizerUnsupported in `issues`, for a construct that is
/// not in the common subset; whether the rest is well-formed is PCRE2's to say.
std::optional<std::string> ToPcre2Dialect(std::string_view source,
                                          const std::string& where,
                                          FileIssues* issues);

}  // namespace signet::text
