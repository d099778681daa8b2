#pragma once
// Cuts text into the pieces that are merged separately: every match of the
// pre-tokenizer's regex is a piece, and so is every gap between two matches.
// Immutable; any thread.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/file_issues.h"

namespace signet::text {

class Splitter {
 public:
  /// `regex` as the tokenizer file has it; `where` is its place for reports.
  /// Null when something was added to `issues`.
  static std::unique_ptr<const Splitter> Compile(std::string_view regex,
                                                 const std::string& where,
                                                 FileIssues* issues);
  ~Splitter();

  /// Appends the end offset of every piece of `text`, which must be UTF-8; no
  /// piece is empty and the last ends with the text. False when the regex
  /// needs more work than any sane one would; it always returns in time linear
  /// in the length of `text`.
  bool Split(std::string_view text, std::vector<size_t>* ends) const;

 private:
  struct Compiled;
  explicit Splitter(std::unique_ptr<const Compiled> compiled);
  std::unique_ptr<const Compiled> compiled_;
};

}  // namespace signet::text
