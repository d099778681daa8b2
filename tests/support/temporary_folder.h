#pragma once
// A folder of this test program's own.

#include <filesystem>

namespace signet::testing {

/// Made by the first call, removed with all it holds when the program ends.
const std::filesystem::path& TemporaryFolder();

}  // namespace signet::testing
