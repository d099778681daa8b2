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

}  // namespace

ProgressBar::ProgressBar()
    : is_terminal_(isatty(STDERR_FILENO) == 1),
      next_(std::chrono::steady_clock::now() + kInterval) {}

ProgressBar::~ProgressBar() {
  if (is_drawn_) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::Update(const LoadProgress& progress) {
  if (!is_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kInterval;
  is_drawn_ = true;
  const double total = std::max(1.0, static_cast<double>(progress.total_bytes));
  const double done = static_cast<double>(progress.done_bytes);
  const double share = std::clamp(done / total, 0.0, 1.0);
  const auto full = static_cast<size_t>(share * kCells);
  fmt::print(stderr, "\rloading [{}{}] {:3.0f}% {:.1f} of {:.1f} GB\033[K",
             std::string(full, '#'), std::string(kCells - full, '.'),
             share * 100, done / kGigabyte, total / kGigabyte);
  std::fflush(stderr);
}

}  // namespace signet::cli
