#pragma once
// The part of a command in a run of several processes: only rank 0 speaks, and
// all end in one way. Without a world, or on its own, a process is rank 0.

#include <CLI/CLI.hpp>
#include <chrono>
#include <optional>

#include "signet/world.h"

namespace signet::cli {

class Launcher {
 public:
  /// --launcher and --deadline.
  void AddFlags(CLI::App& app);

  /// Joins the processes that were launched, if they were.
  Result<void> Join();
  const std::optional<World>& world() const { return world_; }
  bool speaks() const { return !world_ || world_->rank() == 0; }

  /// Reports an error that every rank has; rank 0 speaks for all, unless one
  /// was lost. The exit code.
  int Report(const Error& error, bool json) const;
  /// Reports an error that this rank alone may have.
  int ReportOwn(const Error& error, bool json);
  /// Ends the processes together with this exit code.
  int Leave(int code);
  /// After an error in the midst of a run: ends all processes at once. Without
  /// a world gives back the code.
  int End(int code);

 private:
  bool mpi_ = false;
  std::chrono::milliseconds deadline_{60000};
  std::optional<World> world_;
};

}  // namespace signet::cli
