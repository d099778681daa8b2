#include "signet/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace signet {
namespace {

constexpr std::array<std::string_view, kNumRejectionCodes> kNames = {
#define SIGNET_X(enumerator, name) name,
    SIGNET_REJECTION_CODES(SIGNET_X)
#undef SIGNET_X
};

}  // namespace

std::string_view Name(RejectionCode code) {
  return kNames[static_cast<size_t>(code)];
}

bool Rejections::Has(RejectionCode code) const {
  return std::any_of(list_.begin(), list_.end(),
                     [&](const Rejection& r) { return r.code == code; });
}

int ExitCode(const Error& error) {
  return std::holds_alternative<Rejections>(error) ? 3 : 1;
}

std::string Describe(const Rejection& rejection) {
  std::string text =
      fmt::format("{}: {}", Name(rejection.code), rejection.message);
  std::string detail = rejection.where;
  const auto add = [&detail](std::string_view label, const std::string& value) {
    if (value.empty()) return;
    if (!detail.empty()) detail += "; ";
    detail += fmt::format("{} {}", label, value);
  };
  add("got", rejection.got);
  add("want", rejection.want);
  if (!detail.empty()) text += fmt::format(" ({})", detail);
  return text;
}

std::string Describe(const Error& error) {
  if (const auto* failure = std::get_if<Failure>(&error)) {
    if (failure->where.empty()) return failure->message;
    return fmt::format("{} ({})", failure->message, failure->where);
  }
  std::string text;
  for (const Rejection& rejection : std::get<Rejections>(error).list()) {
    if (!text.empty()) text += '\n';
    text += Describe(rejection);
  }
  return text;
}

}  // namespace signet
