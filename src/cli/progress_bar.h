#pragma once
// The bar of a load, on stderr. Draws nothing unless stderr is a terminal;
// what it drew is gone when it is destroyed.

#include <chrono>

#include "signet/engine.h"

namespace signet::cli {

class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Update(const LoadProgress& progress);

 private:
  bool is_terminal_;
  bool is_drawn_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace signet::cli
