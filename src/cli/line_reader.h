#pragma once
// Standard input, line by line and without the stdio buffer, so that nothing
// is read ahead of a prompt. One thread.

#include <optional>
#include <string>

namespace signet::cli {

class LineReader {
 public:
  /// The next line without its end; nothing at the end of the input or when it
  /// cannot be read.
  std::optional<std::string> Next();

 private:
  std::string pending_;
};

}  // namespace signet::cli
