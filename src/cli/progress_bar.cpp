#include "cli/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace signet::cli {
namespace {

constexpr int kCells = 30;
constexpr double kGigabyte = 1e9;
constexpr std::chrono::milliseconds kInterval{100};

std::string Bar(const char* what, double done, double total) {
  const double share = std::clamp(done / std::max(1.0, total), 0.0, 1.0);
  const auto full = static_cast<size_t>(share * kCells);
  return fmt::format("{} [{}{}] {:3.0f}%", what, std::string(full, '#'),
                     std::string(kCells - full, '.'), share * 100);
}

}  // namespace

std::string BarText(const LoadProgress& progress) {
  const auto total = static_cast<double>(progress.total_bytes);
  const auto done = static_cast<double>(progress.done_bytes);
  return fmt::format("{} {:.1f} of {:.1f} GB", Bar("loading", done, total),
                     done / kGigabyte, total / kGigabyte);
}

std::string BarText(const PromptEvent& event) {
  return fmt::format("{} {} of {} tokens",
                     Bar("reading", static_cast<double>(event.read),
                         static_cast<double>(event.tokens)),
                     event.read, event.tokens);
}

ProgressBar::ProgressBar()
    : is_terminal_(isatty(STDERR_FILENO) == 1),
      next_(std::chrono::steady_clock::now() + kInterval) {}

ProgressBar::~ProgressBar() { Clear(); }

void ProgressBar::Clear() {
  if (is_drawn_) fmt::print(stderr, "\r\033[K");
  is_drawn_ = false;
}

bool ProgressBar::IsDue() {
  if (!is_terminal_) return false;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return false;
  next_ = now + kInterval;
  return true;
}

void ProgressBar::Draw(const std::string& text) {
  is_drawn_ = true;
  fmt::print(stderr, "\r{}\033[K", text);
  std::fflush(stderr);
}

}  // namespace signet::cli
