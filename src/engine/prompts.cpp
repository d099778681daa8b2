#include "signet/prompts.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "engine/boundary.h"
#include "model/checkpoint.h"
#include "text/utf8.h"

namespace signet {
namespace {

constexpr uint64_t kMaxBytes = (uint64_t{64} << 20) - 1;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

Result<void> CheckLine(std::string_view line, const std::string& where) {
  const auto refuse = [&](const char* what, std::string got = {},
                          std::string want = {}) {
    return Reject(RejectionCode::kRequestInvalid, where, what, std::move(got),
                  std::move(want));
  };
  if (line.empty()) return refuse("the line is empty");
  if (line.back() == '\r') {
    return refuse("the line ends in a carriage return", "CR LF", "LF");
  }
  if (line.starts_with(kByteOrderMark)) {
    return refuse("the line begins with a byte order mark");
  }
  const size_t at = text::FindInvalidUtf8(line);
  if (at == std::string_view::npos) return {};
  return refuse(
      "the line is not UTF-8",
      fmt::format("0x{:02X} at byte {}", static_cast<uint8_t>(line[at]), at));
}

Result<std::vector<std::string>> LinesOf(const std::filesystem::path& file) {
  SIGNET_ASSIGN_OR_RETURN(const model::OpenedFile opened,
                          model::OpenedFile::Open(file));
  SIGNET_ASSIGN_OR_RETURN(const std::string content, opened.ReadAll(kMaxBytes));
  std::vector<std::string> prompts;
  std::string_view rest = content;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    SIGNET_RETURN_IF_ERROR(CheckLine(
        line, fmt::format("{}:{}", file.string(), prompts.size() + 1)));
    prompts.emplace_back(line);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  if (!prompts.empty()) return prompts;
  return Reject(RejectionCode::kRequestInvalid, file.string(),
                "the file has no prompt", "0 bytes", "one prompt a line");
}

}  // namespace

Result<std::vector<std::string>> ReadPrompts(
    const std::filesystem::path& file) {
  return AtBoundary("prompts", [&] { return LinesOf(file); });
}

}  // namespace signet
