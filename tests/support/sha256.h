#pragma once
// SHA-256 (FIPS 180-4), for comparing files with digests that other programs
// wrote.

#include <filesystem>
#include <string>
#include <string_view>

namespace signet::testing {

/// 64 lower-case hexadecimal digits.
std::string Sha256(std::string_view bytes);
/// Of a file's bytes; ends the program when it cannot be read.
std::string Sha256OfFile(const std::filesystem::path& path);

}  // namespace signet::testing
