#pragma once
// Reading and writing UTF-8 one character at a time, by the rule of maximal
// subparts (Unicode 3.9, table 3-7). Stateless; any thread.

#include <cstddef>
#include <string>
#include <string_view>

namespace signet::text {

/// What the bytes at the front of a text are.
struct Utf8Step {
  enum class Kind {
    kCharacter,  // `code_point`, in `length` bytes
    kInvalid,    // `length` bytes that no further byte can complete
    kTruncated,  // all bytes there are, a proper prefix of a character
  };
  Kind kind;
  size_t length;
  char32_t code_point;  // of a kCharacter, else 0
};

/// Reads the front of `bytes`, which must not be empty.
Utf8Step ReadUtf8(std::string_view bytes);

/// Offset of the first byte that is not part of a whole character, or npos.
size_t FindInvalidUtf8(std::string_view bytes);

/// Appends a Unicode scalar value.
void AppendUtf8(char32_t code_point, std::string* out);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

}  // namespace signet::text
