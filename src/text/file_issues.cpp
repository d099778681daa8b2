#include "text/file_issues.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "text/utf8.h"

namespace signet::text {
namespace {

constexpr size_t kMaxReported = 32;
constexpr size_t kMaxQuotedBytes = 64;

}  // namespace

std::string Quoted(std::string_view bytes) {
  std::string quoted = "\"";
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Step step = ReadUtf8(bytes.substr(at));
    if (at + step.length > kMaxQuotedBytes) break;
    const bool is_shown = step.kind == Utf8Step::Kind::kCharacter &&
                          step.code_point >= 0x20 && step.code_point != 0x7F;
    for (const char byte : bytes.substr(at, step.length)) {
      if (is_shown) {
        quoted += byte;
      } else {
        quoted += fmt::format("\\x{:02X}", static_cast<uint8_t>(byte));
      }
    }
    at += step.length;
  }
  quoted += '"';
  if (at < bytes.size())
    quoted += fmt::format(" and {} more bytes", bytes.size() - at);
  return quoted;
}

void FileIssues::Invalid(std::string where, std::string message,
                         std::string got, std::string want) {
  Add({RejectionCode::kTokenizerInvalid, std::move(where), std::move(got),
       std::move(want), std::move(message)});
}

void FileIssues::Unsupported(std::string where, std::string message,
                             std::string got, std::string want) {
  Add({RejectionCode::kTokenizerUnsupported, std::move(where), std::move(got),
       std::move(want), std::move(message)});
}

void FileIssues::Add(Rejection rejection) {
  if (++num_issues_ <= kMaxReported) list_.Add(std::move(rejection));
}

tl::unexpected<Error> FileIssues::Take() {
  if (num_issues_ > kMaxReported) {
    list_.Add(RejectionCode::kTokenizerInvalid, "tokenizer.json",
              fmt::format("{} more problems are not listed",
                          num_issues_ - kMaxReported));
  }
  return list_.Take();
}

}  // namespace signet::text
