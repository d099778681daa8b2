#pragma once
// The merge tables of a tokenizer file, checked against its vocabulary.

#include <optional>
#include <vector>

#include "text/bpe.h"
#include "text/file_issues.h"
#include "text/tokenizer_document.h"
#include "text/vocabulary.h"

namespace signet::text {

/// Nothing when something was added to `issues`: a byte without a token, a
/// merge of or to a token that is not there, a repeated merge.
std::optional<Bpe> MakeBpe(const std::vector<TokenizerDocument::Merge>& merges,
                           const Vocabulary& vocabulary, FileIssues* issues);

}  // namespace signet::text
