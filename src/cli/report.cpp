#include "cli/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>

#include "cli/exit_code.h"
#include "cli/json_output.h"
#include "cli/standard_output.h"

namespace signet::cli {

int Report(const Error& error, bool json) {
  if (json) {
    if (!WriteOut(ErrorJson(error))) return ReportClosedOutput(errno);
  } else {
    fmt::print(stderr, "{}\n", Describe(error));
  }
  return ExitCode(error);
}

int ReportUsage(const std::string& command, const std::string& message) {
  const std::string name = command.empty() ? "signet" : "signet " + command;
  fmt::print(stderr, "{}: {} (see {} --help)\n", name, message, name);
  return kExitUsage;
}

}  // namespace signet::cli
