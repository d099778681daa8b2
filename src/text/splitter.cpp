#include "text/splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/check.h"
#include "text/regex_dialect.h"

namespace signet::text {
namespace {

constexpr size_t kMaxRegexBytes = 8192;
constexpr uint32_t kMaxNesting = 32;

// A match is first sought in a short window of the text. When PCRE2 reports
// that it would look past the window, the window is doubled. So the work of a
// match is in proportion to what it looks at, and can be counted: PCRE2's own
// limit bounds one call, and a regex that looks far ahead for every piece
// would be quadratic all the same.
constexpr size_t kFirstWindowBytes = 64;
constexpr size_t kWorkBytesPerByte = 256;
constexpr size_t kWorkBytes = size_t{1} << 20;
constexpr uint32_t kMatchStepsPerByte = 32;
constexpr uint32_t kMatchSteps = 1000;
constexpr uint32_t kMaxHeapKib = 16384;
constexpr size_t kJitStackBytes = size_t{32} << 10;
constexpr size_t kMaxJitStackBytes = size_t{1} << 20;

template <auto kFree>
struct Free {
  void operator()(auto* object) const { kFree(object); }
};
using Code = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using CompileContext =
    std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context_free>>;
using MatchContext =
    std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using MatchData =
    std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>>;

PCRE2_SPTR Units(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

bool ContinuesCharacter(char byte) {
  return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

// The state of one search through one text.
class Search {
 public:
  Search(const pcre2_code* code, std::string_view text)
      : code_(code),
        text_(text),
        work_left_(kWorkBytes + kWorkBytesPerByte * text.size()),
        data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        jit_stack_(pcre2_jit_stack_create(kJitStackBytes, kMaxJitStackBytes,
                                          nullptr)) {
    SIGNET_CHECK(data_ != nullptr && context_ != nullptr);
    pcre2_set_heap_limit(context_.get(), kMaxHeapKib);
    pcre2_jit_stack_assign(context_.get(), nullptr, jit_stack_.get());
  }

  enum class Outcome { kMatch, kEnd, kTooMuchWork };
  struct Match {
    size_t begin;
    size_t end;
  };

  /// The first match that begins at or after `from`.
  Outcome Next(size_t from, Match* match) {
    size_t window = kFirstWindowBytes;
    while (true) {
      const size_t end = WindowEnd(from, window);
      if (work_left_ < end - from) return Outcome::kTooMuchWork;
      work_left_ -= end - from;
      const int found = Run(from, end);
      if (found >= 0) {
        const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data_.get());
        *match = {bounds[0], bounds[1]};
        // A lookahead with \K could turn them round; \K is not in the dialect.
        SIGNET_CHECK(from <= bounds[0] && bounds[0] <= bounds[1]);
        return Outcome::kMatch;
      }
      if (found == PCRE2_ERROR_PARTIAL) {
        window *= 2;
      } else if (found != PCRE2_ERROR_NOMATCH) {
        return Outcome::kTooMuchWork;
      } else if (end == text_.size()) {
        return Outcome::kEnd;
      } else {
        // No match begins in the window, nor would with more text after it.
        from = end;
      }
    }
  }

 private:
  size_t WindowEnd(size_t from, size_t window) const {
    if (window >= text_.size() - from) return text_.size();
    size_t end = from + window;
    while (end < text_.size() && ContinuesCharacter(text_[end])) ++end;
    return end;
  }

  int Run(size_t from, size_t end) {
    const size_t steps = std::min<size_t>(
        kMatchSteps + kMatchStepsPerByte * (end - from), 1u << 30);
    pcre2_set_match_limit(context_.get(), static_cast<uint32_t>(steps));
    const uint32_t partial = end < text_.size() ? PCRE2_PARTIAL_HARD : 0;
    return pcre2_match(code_, Units(text_), end, from,
                       PCRE2_NO_UTF_CHECK | partial, data_.get(),
                       context_.get());
  }

  const pcre2_code* code_;
  const std::string_view text_;
  size_t work_left_;
  MatchData data_;
  MatchContext context_;
  JitStack jit_stack_;
};

}  // namespace

struct Splitter::Compiled {
  Code code;
};

Splitter::Splitter(std::unique_ptr<const Compiled> compiled)
    : compiled_(std::move(compiled)) {}

Splitter::~Splitter() = default;

std::unique_ptr<const Splitter> Splitter::Compile(std::string_view regex,
                                                  const std::string& where,
                                                  FileIssues* issues) {
  if (regex.empty() || regex.size() > kMaxRegexBytes) {
    issues->Invalid(where, "the regular expression is empty or too long",
                    fmt::format("{} bytes", regex.size()),
                    fmt::format("1 ... {} bytes", kMaxRegexBytes));
    return nullptr;
  }
  const std::optional<std::string> translated =
      ToPcre2Dialect(regex, where, issues);
  if (!translated) return nullptr;
  const std::string_view pattern = *translated;
  const CompileContext context(pcre2_compile_context_create(nullptr));
  SIGNET_CHECK(context != nullptr);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), kMaxNesting);
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  Code code(pcre2_compile(Units(pattern), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE, &error,
                          &error_offset, context.get()));
  if (code == nullptr) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof(message));
    issues->Invalid(
        where, "the regular expression does not compile",
        fmt::format(
            "{}, before {}", reinterpret_cast<const char*>(message),
            Quoted(pattern.substr(std::min(error_offset, pattern.size())))));
    return nullptr;
  }
  // Without a JIT the same calls are interpreted: slower, the same matches.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  auto compiled = std::make_unique<const Compiled>(Compiled{std::move(code)});
  return std::unique_ptr<const Splitter>(new Splitter(std::move(compiled)));
}

bool Splitter::Split(std::string_view text, std::vector<size_t>* ends) const {
  if (text.empty()) return true;
  Search search(compiled_->code.get(), text);
  size_t from = 0;
  size_t piece_begin = 0;
  size_t last_match_end = text.size() + 1;
  const auto end_piece = [&](size_t end) {
    if (end > piece_begin) ends->push_back(end);
    piece_begin = end;
  };
  while (from <= text.size()) {
    Search::Match match = {};
    const Search::Outcome outcome = search.Next(from, &match);
    if (outcome == Search::Outcome::kTooMuchWork) return false;
    if (outcome == Search::Outcome::kEnd) break;
    if (match.begin == match.end && match.end == last_match_end) {
      // Nothing right after a match is not a match of its own.
      do {
        ++from;
      } while (from < text.size() && ContinuesCharacter(text[from]));
      continue;
    }
    end_piece(match.begin);
    end_piece(match.end);
    from = last_match_end = match.end;
  }
  end_piece(text.size());
  return true;
}

}  // namespace signet::text
