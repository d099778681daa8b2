#pragma once
// The small files by which the kernel tells of the machine. A stream would not
// do: it swallows a lack of memory and gives half a file.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace signet::backend::cpu {

/// Where the kernel tells; replaced by folders of made-up files in tests.
struct SystemRoots {
  std::filesystem::path proc = "/proc";
  std::filesystem::path cgroup = "/sys/fs/cgroup";
};

/// All of the file; empty if it cannot be read.
std::string SystemFile(const std::filesystem::path& path);

/// Takes the next line of a text, or with kBlanks the next word of a line.
/// Empty when there is none.
inline constexpr std::string_view kBlanks = " \t\n";
std::string_view TakeNext(std::string_view& text,
                          std::string_view separators = "\n");

/// The number a text starts with; none for `max`.
std::optional<uint64_t> LeadingNumber(std::string_view text);

}  // namespace signet::backend::cpu
