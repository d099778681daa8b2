#pragma once
// Standard output without a buffer: text is seen as it comes, and what could
// not be written is known at once.

#include <string>
#include <string_view>

namespace signet::cli {

/// False if `text` could not be written whole (a closed pipe, a full disk);
/// errno says why.
bool WriteOut(std::string_view text);

/// Writes the whole of what a command prints. kExitDone, or kExitFailed after
/// a message on stderr.
int PrintResult(std::string_view text);

/// `text`, ended by a newline if it is not yet.
std::string WithFinalNewline(std::string text);

/// Says on stderr that standard output failed, and why. kExitFailed.
int ReportClosedOutput(int error_number);

}  // namespace signet::cli
