#pragma once
// A bar on stderr, of a load or of a prompt. Draws nothing unless stderr is a
// terminal, nor before a moment has passed; what it drew is gone once it is
// cleared or destroyed.

#include <chrono>
#include <string>

#include "signet/engine.h"
#include "signet/session.h"

namespace signet::cli {

/// The line, without what places it.
std::string BarText(const LoadProgress& progress);
std::string BarText(const PromptEvent& event);

class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  template <typename Progress>
  void Update(const Progress& progress) {
    if (IsDue()) Draw(BarText(progress));
  }
  void Clear();

 private:
  bool IsDue();
  void Draw(const std::string& text);

  bool is_terminal_;
  bool is_drawn_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace signet::cli
