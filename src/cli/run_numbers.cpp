#include "cli/run_numbers.h"

#include <fmt/format.h>

#include <cstdint>

#include "cli/signals.h"

namespace signet::cli {
namespace {

std::string Count(int64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

}  // namespace

std::string NumbersOf(const EndEvent& end) {
  std::string line = Count(end.tokens, "token");
  if (end.decode_tokens_per_second > 0) {
    line += fmt::format(", {:.1f} tok/s", end.decode_tokens_per_second);
  }
  if (end.first_token_ms > 0) {
    line += fmt::format(", first token after {:.1f} ms", end.first_token_ms);
  }
  if (IsInterrupted()) line += ", interrupted";
  return line;
}

std::string NumbersOf(std::span<const Generated> all, double seconds) {
  int64_t tokens = 0;
  for (const Generated& one : all) tokens += one.end.tokens;
  std::string line =
      fmt::format("{}, {}", Count(static_cast<int64_t>(all.size()), "prompt"),
                  Count(tokens, "token"));
  if (seconds > 0) {
    line +=
        fmt::format(", {:.1f} tok/s", static_cast<double>(tokens) / seconds);
  }
  if (IsInterrupted()) line += ", interrupted";
  return line;
}

}  // namespace signet::cli
