#include "backend/cpu/system_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <new>

namespace signet::backend::cpu {

std::string SystemFile(const std::filesystem::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::string text;
  std::array<char, 4096> block;
  ssize_t size = 0;
  do {
    size = read(file, block.data(), block.size());
    if (size <= 0) continue;
    try {
      text.append(block.data(), static_cast<size_t>(size));
    } catch (const std::bad_alloc&) {
      close(file);
      throw;
    }
  } while (size > 0 || (size < 0 && errno == EINTR));
  close(file);
  return size < 0 ? std::string() : text;
}

std::string_view TakeNext(std::string_view& text, std::string_view separators) {
  text.remove_prefix(std::min(text.find_first_not_of(separators), text.size()));
  const size_t end = std::min(text.find_first_of(separators), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end);
  return taken;
}

std::optional<uint64_t> LeadingNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

}  // namespace signet::backend::cpu
