#pragma once

namespace signet::cli {

/// The process after main.cpp has found the CPU fit: parses, runs the command,
/// and gives the exit code.
int RunApplication(int argc, const char* const* argv);

}  // namespace signet::cli
