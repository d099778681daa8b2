#pragma once
// JSON objects on record, one a file.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

namespace signet::evidence {

/// The whole file or none of it: written beside `file`, then renamed. `what`
/// is for messages: "receipt". Failure: kIo.
Result<void> WriteJsonFile(const nlohmann::ordered_json& object,
                           const std::filesystem::path& file,
                           const std::string& what);

/// Refuses where `file` could not be: kFileMissing. Else whether something is
/// there; a link that leads nowhere is something, too.
Result<bool> IsTaken(const std::filesystem::path& file,
                     const std::string& what);

}  // namespace signet::evidence
