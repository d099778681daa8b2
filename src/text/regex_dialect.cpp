#include "text/regex_dialect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace signet::text {
namespace {

// General categories: names with one meaning everywhere. Scripts are not here:
// `\p{Greek}` is Script in one dialect and Script_Extensions in the other.
constexpr std::array<std::string_view, 37> kCategories = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo",
    "Lt", "Lu", "M",  "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No",
    "P",  "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S",  "Sc",
    "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};

// Groups that open alike. `(?i)` is not here: its reach differs.
constexpr std::array<std::string_view, 7> kGroups = {
    "(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};

bool IsPunctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

class Translator {
 public:
  Translator(std::string_view source, const std::string& where,
             FileIssues* issues)
      : source_(source), where_(where), issues_(issues) {}

  std::optional<std::string> Run() {
    while (at_ < source_.size() && !refused_) Step();
    if (class_begin_ != kNoClass) Refuse(class_begin_, 1);
    if (refused_) return std::nullopt;
    return std::move(pattern_);
  }

 private:
  static constexpr size_t kNoClass = static_cast<size_t>(-1);

  std::string_view rest() const { return source_.substr(at_); }

  // One construct. `quantifiable_` says whether a quantifier may follow it.
  void Step() {
    const char c = source_[at_];
    if (c == '\\') return Escape();
    if (class_begin_ != kNoClass) return InClass(c);
    switch (c) {
      case '[':
        return OpenClass();
      case '(':
        return OpenGroup();
      case '*':
      case '+':
      case '?':
        return Quantifier(1, /*counted=*/false);
      case '{':
        return CountedQuantifier();
      case '|':
        Take(1);
        quantifiable_ = false;
        return;
      case '^':
      case '$':
      case '}':
        return Refuse(at_, 1);
      default:
        Take(1);
        quantifiable_ = true;
    }
  }

  void InClass(char c) {
    if (c == '[' || rest().starts_with("&&")) return Refuse(at_, 1);
    Take(1);
    if (c != ']') return;
    class_begin_ = kNoClass;
    quantifiable_ = true;
  }

  void OpenClass() {
    class_begin_ = at_;
    Take(rest().starts_with("[^") ? 2 : 1);
    // A bracket in first place is a member here and an error there.
    if (rest().starts_with(']')) Refuse(class_begin_, at_ - class_begin_ + 1);
  }

  void OpenGroup() {
    quantifiable_ = false;
    if (!rest().starts_with("(?") && !rest().starts_with("(*")) return Take(1);
    for (const std::string_view group : kGroups) {
      if (rest().starts_with(group)) return Take(group.size());
    }
    Refuse(at_, 3);
  }

  // A quantifier of `length` bytes and the `?` or `+` that may follow it; after
  // a counted one those mean different things, as does a second quantifier.
  void Quantifier(size_t length, bool counted) {
    if (!quantifiable_) return Refuse(at_, length);
    Take(length);
    quantifiable_ = false;
    if (rest().empty() || (rest()[0] != '?' && rest()[0] != '+')) return;
    if (counted) return Refuse(at_ - length, length + 1);
    Take(1);
  }

  void CountedQuantifier() {
    size_t length = 1;
    const auto digits = [&] {
      const size_t begin = length;
      while (length < rest().size() && IsDigit(rest()[length])) ++length;
      return length > begin;
    };
    bool is_count = digits();
    if (length < rest().size() && rest()[length] == ',') {
      ++length;
      digits();
    }
    is_count = is_count && length < rest().size() && rest()[length] == '}';
    if (!is_count) return Refuse(at_, length);
    Quantifier(length + 1, /*counted=*/true);
  }

  void Escape() {
    quantifiable_ = true;
    const char c = rest().size() < 2 ? '\0' : rest()[1];
    switch (c) {
      case 's':
        pattern_ += "\\p{White_Space}";
        at_ += 2;
        return;
      case 'S':
        pattern_ += "\\P{White_Space}";
        at_ += 2;
        return;
      case 'd':
      case 'D':
      case 'f':
      case 'n':
      case 'r':
      case 't':
        return Take(2);
      case 'p':
      case 'P':
        return Property();
      default:
        if (!IsPunctuation(c)) return Refuse(at_, 2);
        Take(2);
    }
  }

  void Property() {
    const size_t end = rest().find('}');
    if (end == std::string_view::npos || rest()[2] != '{') {
      return Refuse(at_, 3);
    }
    const std::string_view name = rest().substr(3, end - 3);
    if (std::ranges::find(kCategories, name) == kCategories.end()) {
      return Refuse(at_, end + 1);
    }
    Take(end + 1);
  }

  void Take(size_t length) {
    pattern_ += source_.substr(at_, length);
    at_ += length;
  }

  void Refuse(size_t begin, size_t length) {
    refused_ = true;
    class_begin_ = kNoClass;
    issues_->Unsupported(
        where_, "the regular expression has a construct that is not supported",
        fmt::format("{} at byte {}", Quoted(source_.substr(begin, length)),
                    begin));
  }

  const std::string_view source_;
  const std::string& where_;
  FileIssues* issues_;
  std::string pattern_;
  size_t at_ = 0;
  size_t class_begin_ = kNoClass;
  bool quantifiable_ = false;
  bool refused_ = false;
};

}  // namespace

std::optional<std::string> ToPcre2Dialect(std::string_view source,
                                          const std::string& where,
                                          FileIssues* issues) {
  return Translator(source, where, issues).Run();
}

}  // namespace signet::text
