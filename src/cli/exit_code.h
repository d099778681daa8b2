#pragma once
// What the process says by its exit status. 1 and 3 follow from the type of an
// error (signet::ExitCode).

namespace signet::cli {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;  // the world failed after admission
inline constexpr int kExitUsage = 2;
inline constexpr int kExitRefused = 3;
inline constexpr int kExitDifferent = 4;  // verify found a difference
inline constexpr int kExitInterrupted = 130;

}  // namespace signet::cli
