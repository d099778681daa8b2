#include "fuzz_text/text_mutator.h"

#include <cctype>
#include <utility>

namespace signet::testing {
namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }

}  // namespace

std::string TextMutator::Mutate(std::string text) {
  const size_t edits = Below(4) == 0 ? 2 + Below(2) : 1;
  for (size_t i = 0; i < edits && !text.empty(); ++i) Edit(text);
  return text;
}

TextMutator::Range TextMutator::Line(const std::string& text) {
  const size_t at = Below(text.size());
  const size_t before = text.rfind('\n', at == 0 ? 0 : at - 1);
  const size_t begin = before == text.npos ? 0 : before + 1;
  const size_t end = text.find('\n', begin);
  return {begin, (end == text.npos ? text.size() : end + 1) - begin};
}

TextMutator::Range TextMutator::Word(const std::string& text) {
  size_t begin = Below(text.size());
  const auto ends = [&](size_t at) {
    return at >= text.size() || text[at] == ' ' || text[at] == '\n' ||
           text[at] == '=';
  };
  while (begin > 0 && !ends(begin - 1)) --begin;
  size_t end = begin;
  while (!ends(end)) ++end;
  return {begin, end - begin};
}

TextMutator::Range TextMutator::Number(const std::string& text) {
  size_t at = Below(text.size());
  for (size_t i = 0; i < text.size() && !IsDigit(text[at]); ++i) {
    at = (at + 1) % text.size();
  }
  size_t begin = at;
  while (begin > 0 && IsDigit(text[begin - 1])) --begin;
  size_t end = at;
  while (end < text.size() && IsDigit(text[end])) ++end;
  return {begin, end - begin};
}

std::string TextMutator::OtherNumber(const std::string& digits) {
  const uint64_t value =
      digits.empty() || digits.size() > 18 ? 1 : std::stoull(digits);
  switch (Below(9)) {
    case 0:
      return std::to_string(value + 1);
    case 1:
      return value == 0 ? "-1" : std::to_string(value - 1);
    case 2:
      return std::to_string(value * 2);
    case 3:
      return std::to_string(value / 2);
    case 4:
      return "0";
    case 5:
      return std::to_string(value + 64);
    case 6:
      return std::to_string(random_());
    case 7:
      return "9223372036854775807";
    default:
      return std::to_string(Below(4096));
  }
}

void TextMutator::SwapLines(std::string& text) {
  const Range a = Line(text);
  const std::string taken = text.substr(a.begin, a.size);
  text.erase(a.begin, a.size);
  // A neighbour half of the time: orders that still make sense.
  if (text.empty()) return;
  size_t to = Line(text).begin;
  if (Below(2) == 0) {
    const size_t next = text.find('\n', a.begin);
    to = next == text.npos ? text.size() : next + 1;
  }
  text.insert(to, taken);
}

// A buffer to another place in its arena, or the arena to another size.
void TextMutator::MoveBuffer(std::string& text) {
  const bool arena = Below(4) == 0;
  const std::string key = arena ? "\narena " : " offset=";
  const size_t from = Below(text.size());
  size_t at = text.find(key, from);
  if (at == text.npos) at = text.find(key);
  if (at == text.npos) return;
  at += key.size();
  if (arena) at = text.find(' ', at) + 1;
  size_t end = at;
  while (end < text.size() && IsDigit(text[end])) ++end;
  if (end == at || end - at > 15) return;
  const uint64_t value = std::stoull(text.substr(at, end - at));
  const uint64_t step = 64 * (1 + Below(64));
  const uint64_t moved = arena           ? value + step
                         : Below(2) == 0 ? value + step
                         : value < step  ? 0
                                         : value - step;
  text.replace(at, end - at, std::to_string(moved));
}

void TextMutator::Edit(std::string& text) {
  switch (Below(10)) {
    case 0:
      text[Below(text.size())] = static_cast<char>(random_());
      return;
    case 1: {
      const Range line = Line(text);
      text.erase(line.begin, line.size);
      return;
    }
    case 2: {
      const Range line = Line(text);
      text.insert(line.begin, text.substr(line.begin, line.size));
      return;
    }
    case 3:
      return SwapLines(text);
    case 4: {
      const Range from = Word(text);
      const std::string taken = text.substr(from.begin, from.size);
      const Range to = Word(text);
      text.replace(to.begin, to.size, taken);
      return;
    }
    case 5: {
      const Range word = Word(text);
      text.insert(word.begin + word.size, 1,
                  static_cast<char>('a' + Below(26)));
      return;
    }
    case 6: {
      const Range number = Number(text);
      text.replace(number.begin, number.size,
                   OtherNumber(text.substr(number.begin, number.size)));
      return;
    }
    default:
      return MoveBuffer(text);
  }
}

}  // namespace signet::testing
