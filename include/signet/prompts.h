#pragma once
// Files of prompts. Any thread.

#include <filesystem>
#include <string>
#include <vector>

#include "signet/error.h"

namespace signet {

/// The lines of a file, one prompt each, at least one; the last may lack its
/// end. Refused with the line: a line that is empty or not UTF-8, ends in CR LF
/// or begins with a byte order mark (kRequestInvalid, the first such); a file
/// that is missing, unreadable or has no line; 64 MiB or more. Failure: kIo,
/// kMemory.
Result<std::vector<std::string>> ReadPrompts(const std::filesystem::path& file);

}  // namespace signet
