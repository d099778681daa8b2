#pragma once
// The binary on a pseudo terminal, as a person at a keyboard has it: all three
// standard files are the terminal, and Ctrl-C is a key.

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace signet::testing {

class Terminal {
 public:
  static constexpr std::string_view kCtrlC = "\x03";
  static constexpr std::string_view kCtrlD = "\x04";

  explicit Terminal(std::vector<std::string> arguments);
  /// Ends the program if Wait did not.
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void Type(std::string_view keys);
  /// What came since the last call, up to the end of `text`. Fails the test if
  /// that does not come within a minute; a program that says nothing for one is
  /// killed.
  std::string Until(std::string_view text);
  /// The rest of the output, and the exit code: 128 + signal if one ended it.
  std::string Rest();
  int Wait();

 private:
  bool ReadMore();

  int terminal_ = -1;
  pid_t child_ = -1;
  std::string unread_;
};

}  // namespace signet::testing
