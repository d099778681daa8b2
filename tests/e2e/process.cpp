#include "e2e/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace signet::testing {
namespace {

constexpr std::chrono::seconds kDeadline{120};

bool TakeOneProcessor() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return false;
  int first = 0;
  while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, &set)) ++first;
  CPU_ZERO(&set);
  CPU_SET(first, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

[[noreturn]] void BecomeProgram(const std::string& program,
                                const Invocation& invocation, int out,
                                int err) {
  // Whoever runs the tests may have these ignored, and that is inherited.
  signal(SIGINT, SIG_DFL);
  signal(SIGPIPE, SIG_DFL);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  if (invocation.close_stdin) {
    close(STDIN_FILENO);
  } else {
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  }
  if (invocation.close_stdout) close(STDOUT_FILENO);
  for (const auto& [name, value] : invocation.environment) {
    if (value.empty()) {
      unsetenv(name.c_str());
    } else {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  for (const auto& [resource, bytes] : invocation.limits) {
    const rlimit limit = {bytes, bytes};
    if (setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) {
      _exit(126);
    }
  }
  if (invocation.one_processor && !TakeOneProcessor()) _exit(126);
  std::vector<char*> arguments = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : invocation.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  _exit(127);
}

std::string Contents(int file) {
  std::string text;
  std::array<char, 4096> block;
  lseek(file, 0, SEEK_SET);
  while (true) {
    const ssize_t size = read(file, block.data(), block.size());
    if (size <= 0) return text;
    text.append(block.data(), static_cast<size_t>(size));
  }
}

void ReadOutput(pid_t child, int pipe, const Invocation& invocation,
                std::string& out) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  std::array<char, 4096> block;
  while (true) {
    if (std::chrono::steady_clock::now() > end) {
      ADD_FAILURE() << "still running after " << kDeadline.count() << " s";
      kill(child, SIGKILL);
      return;
    }
    pollfd wait = {pipe, POLLIN, 0};
    if (poll(&wait, 1, 100) == 0) continue;
    size_t wanted = block.size();
    if (invocation.read_at_most > 0) {
      wanted = invocation.read_at_most - out.size();
      if (wanted == 0) return;
    }
    const ssize_t size = read(pipe, block.data(), wanted);
    if (size <= 0) return;
    const bool is_first = out.empty();
    out.append(block.data(), static_cast<size_t>(size));
    if (is_first && invocation.on_output) invocation.on_output(child);
  }
}

}  // namespace

Outcome RunProcess(const std::string& program, const Invocation& invocation) {
  std::array<int, 2> pipe_ends;
  EXPECT_EQ(pipe2(pipe_ends.data(), O_CLOEXEC), 0);
  const int err = memfd_create("stderr", MFD_CLOEXEC);
  const pid_t child = fork();
  if (child == 0) BecomeProgram(program, invocation, pipe_ends[1], err);
  close(pipe_ends[1]);
  std::thread beside;
  if (invocation.on_start) {
    beside = std::thread([&] { invocation.on_start(child); });
  }
  Outcome outcome;
  ReadOutput(child, pipe_ends[0], invocation, outcome.out);
  close(pipe_ends[0]);
  if (beside.joinable()) beside.join();
  int status = 0;
  waitpid(child, &status, 0);
  outcome.exit_code =
      WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.err = Contents(err);
  close(err);
  return outcome;
}

}  // namespace signet::testing
