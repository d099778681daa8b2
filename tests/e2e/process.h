#pragma once
// Runs the real binary as a stranger's shell would, and keeps all it said.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace signet::testing {

struct Outcome {
  int exit_code = -1;  // 128 + signal if a signal ended it
  std::string out;
  std::string err;
};

struct Invocation {
  std::vector<std::string> arguments;
  /// Added to the environment; an empty value unsets.
  std::vector<std::pair<std::string, std::string>> environment;
  /// Called once, when the first of standard output has come.
  std::function<void(pid_t)> on_output;
  /// Called at once on a thread of its own.
  std::function<void(pid_t)> on_start;
  bool close_stdin = false;
  bool close_stdout = false;
  /// Resource limits (RLIMIT_...) that the process begins with, in bytes.
  std::vector<std::pair<int, uint64_t>> limits;
  /// It may use one processor, whichever.
  bool one_processor = false;
  /// Reads this many bytes of standard output, then closes the pipe; 0: all.
  size_t read_at_most = 0;
};

/// Fails the test and kills the process after two minutes.
Outcome RunProcess(const std::string& program, const Invocation& invocation);

}  // namespace signet::testing
