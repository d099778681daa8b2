#include "cli/standard_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/exit_code.h"

namespace signet::cli {

bool WriteOut(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

int ReportClosedOutput(int error_number) {
  fmt::print(stderr, "cannot write to standard output: {}\n",
             std::strerror(error_number));
  return kExitFailed;
}

std::string WithFinalNewline(std::string text) {
  if (text.empty() || text.back() != '\n') text += '\n';
  return text;
}

int PrintResult(std::string_view text) {
  return WriteOut(text) ? kExitDone : ReportClosedOutput(errno);
}

}  // namespace signet::cli
