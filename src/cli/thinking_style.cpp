#include "cli/thinking_style.h"

namespace signet::cli {
namespace {

constexpr std::string_view kBegin = "<think>";
constexpr std::string_view kEnd = "</think>";

}  // namespace

void ThinkingStyle::SetDim(bool dim, std::string* styled) {
  if (dim == is_dim_) return;
  is_dim_ = dim;
  *styled += dim ? "\033[2m" : "\033[0m";
}

std::string ThinkingStyle::Push(std::string_view text) {
  if (!on_ || text.empty()) return std::string(text);
  std::string styled;
  SetDim(inside_, &styled);
  for (const char c : text) {
    styled += c;
    const std::string_view tag = inside_ ? kEnd : kBegin;
    if (c == tag[matched_]) {
      ++matched_;
    } else {
      // `<` stands at the front of a tag only, so nothing else can be kept.
      matched_ = c == '<' ? 1 : 0;
    }
    if (matched_ < tag.size()) continue;
    matched_ = 0;
    inside_ = !inside_;
    SetDim(inside_, &styled);
  }
  return styled;
}

std::string ThinkingStyle::Finish() {
  std::string styled;
  SetDim(false, &styled);
  return styled;
}

}  // namespace signet::cli
