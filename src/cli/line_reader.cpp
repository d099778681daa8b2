#include "cli/line_reader.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace signet::cli {

std::optional<std::string> LineReader::Next() {
  while (true) {
    const size_t end = pending_.find('\n');
    if (end != std::string::npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    std::array<char, 4096> block;
    const ssize_t size = read(STDIN_FILENO, block.data(), block.size());
    if (size < 0 && errno == EINTR) continue;
    if (size > 0) {
      pending_.append(block.data(), static_cast<size_t>(size));
    } else if (pending_.empty()) {
      return std::nullopt;
    } else {
      return std::exchange(pending_, {});
    }
  }
}

}  // namespace signet::cli
