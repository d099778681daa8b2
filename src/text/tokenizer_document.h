#pragma once
// The JSON of a tokenizer file, read without trust: the two long lists of the
// model as flat vectors, everything else as a small DOM. No exception leaves.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_tree.h"
#include "text/file_issues.h"

namespace signet::text {

struct TokenizerDocument {
  struct VocabEntry {
    std::string token;  // in the byte alphabet
    int32_t id;         // 0 ... kMaxTokenId
  };
  struct Merge {
    std::string left;  // both in the byte alphabet
    std::string right;
  };

  std::vector<VocabEntry> vocab;  // model.vocab, in the file's order
  std::vector<Merge> merges;      // model.merges, either of its two forms
  bool has_vocab = false;         // model.vocab is there and an object
  bool has_merges = false;        // model.merges is there and a list
  JsonTree rest{nlohmann::json::object()};  // all but these two
};

inline constexpr int32_t kMaxTokenId = (1 << 24) - 1;

/// Reads `content`; `file` is the name for the report. Adds to `issues` what
/// is malformed, repeated, too deep or too much; `rest` is no object then if
/// nothing more can be said about the file.
TokenizerDocument ReadTokenizerDocument(std::string_view file,
                                        std::string_view content,
                                        FileIssues* issues);

/// A JSON value for people, short.
std::string Describe(const nlohmann::json& value);

}  // namespace signet::text
