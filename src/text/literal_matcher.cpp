#include "text/literal_matcher.h"

#include <algorithm>

namespace signet::text {

LiteralMatcher::LiteralMatcher(const std::vector<AddedToken>& tokens) {
  for (const AddedToken& token : tokens) {
    literals_.push_back({token.content, token.id});
  }
  std::ranges::sort(literals_, {}, &Literal::content);
  for (size_t i = 0; i < literals_.size(); ++i) {
    Range& range =
        by_first_byte_[static_cast<uint8_t>(literals_[i].content[0])];
    if (range.end == 0) range.begin = i;
    range.end = i + 1;
  }
}

LiteralMatcher::Match LiteralMatcher::Find(std::string_view text,
                                           size_t from) const {
  for (size_t at = from; at < text.size(); ++at) {
    if (by_first_byte_[static_cast<uint8_t>(text[at])].end == 0) continue;
    const Literal* literal = LongestAt(text.substr(at));
    if (literal != nullptr) return {at, literal->content.size(), literal->id};
  }
  return {text.size(), 0, -1};
}

// The literals that agree with the text so far are a range of the sorted list;
// every further byte narrows it. One that ends stands at the front.
const LiteralMatcher::Literal* LiteralMatcher::LongestAt(
    std::string_view text) const {
  const Range range = by_first_byte_[static_cast<uint8_t>(text[0])];
  auto begin = literals_.begin() + static_cast<ptrdiff_t>(range.begin);
  auto end = literals_.begin() + static_cast<ptrdiff_t>(range.end);
  const Literal* longest = nullptr;
  for (size_t length = 1; begin != end; ++length) {
    if (begin->content.size() == length) longest = &*begin++;
    if (length == text.size()) break;
    const auto byte_of = [length](const Literal& literal) {
      return static_cast<uint8_t>(literal.content[length]);
    };
    const auto narrowed = std::ranges::equal_range(
        begin, end, static_cast<uint8_t>(text[length]), {}, byte_of);
    begin = narrowed.begin();
    end = narrowed.end();
  }
  return longest;
}

}  // namespace signet::text
