#pragma once
// A bench on record: its JSON object as a file. It says what somebody's run
// measured; nothing is read back but that it is one.

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/result.h"

namespace signet::evidence {

/// Whether `file` may be written: there is nothing yet, or a bench.
Result<void> CheckBenchPlace(const std::filesystem::path& file);
/// The whole file or none of it. Asks CheckBenchPlace again.
Result<void> WriteBench(const nlohmann::ordered_json& bench,
                        const std::filesystem::path& file);

}  // namespace signet::evidence
