#pragma once
// Errors as a command tells them: lines on stderr for people, with --json one
// object on stdout.

#include <string>

#include "signet/error.h"

namespace signet::cli {

/// Tells the error; its exit code.
int Report(const Error& error, bool json);

/// `signet run: MESSAGE (see signet run --help)` on stderr; kExitUsage.
/// `command` may be empty.
int ReportUsage(const std::string& command, const std::string& message);

}  // namespace signet::cli
