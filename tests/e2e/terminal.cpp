#include "e2e/terminal.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>

namespace signet::testing {

Terminal::Terminal(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), SIGNET_BINARY);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  child_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
  if (child_ == 0) {
    // Whoever runs the tests may have it ignored, and that is inherited.
    signal(SIGINT, SIG_DFL);
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  EXPECT_GT(child_, 0);
}

Terminal::~Terminal() {
  if (child_ > 0) {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  close(terminal_);
}

void Terminal::Type(std::string_view keys) {
  EXPECT_EQ(write(terminal_, keys.data(), keys.size()),
            static_cast<ssize_t>(keys.size()));
}

bool Terminal::ReadMore() {
  pollfd wait = {terminal_, POLLIN, 0};
  if (poll(&wait, 1, 60000) <= 0) {
    ADD_FAILURE() << "nothing came for a minute";
    // A program that waits for keys would be waited for without an end.
    if (child_ > 0) kill(child_, SIGKILL);
    return false;
  }
  std::array<char, 4096> block;
  // EIO: the program has ended.
  const ssize_t size = read(terminal_, block.data(), block.size());
  if (size <= 0) return false;
  unread_.append(block.data(), static_cast<size_t>(size));
  return true;
}

std::string Terminal::Until(std::string_view text) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  size_t at = unread_.find(text);
  while (at == std::string::npos) {
    if (std::chrono::steady_clock::now() > end || !ReadMore()) {
      ADD_FAILURE() << "\"" << text << "\" is not in: " << unread_;
      return {};
    }
    at = unread_.find(text);
  }
  const std::string seen = unread_.substr(0, at + text.size());
  unread_.erase(0, seen.size());
  return seen;
}

std::string Terminal::Rest() {
  while (ReadMore()) {
  }
  return unread_;
}

int Terminal::Wait() {
  Rest();
  int status = 0;
  waitpid(child_, &status, 0);
  child_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace signet::testing
