#pragma once
// Finds literal texts (added tokens) in a text: the leftmost, and of those at
// one place the longest. Immutable; any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"

namespace signet::text {

class LiteralMatcher {
 public:
  /// The contents are distinct and not empty.
  explicit LiteralMatcher(const std::vector<AddedToken>& tokens);

  struct Match {
    size_t begin;   // the text's size: no match
    size_t length;  // 0: no match
    int32_t id;
  };
  /// The first match at or after `from`.
  Match Find(std::string_view text, size_t from) const;

 private:
  struct Literal {
    std::string content;
    int32_t id;
  };
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };
  const Literal* LongestAt(std::string_view text) const;

  std::vector<Literal> literals_;         // by content, in byte order
  std::array<Range, 256> by_first_byte_;  // in literals_
};

}  // namespace signet::text
