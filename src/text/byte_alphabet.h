#pragma once
// GPT-2's byte-level alphabet: a vocabulary file spells every byte as one
// printable character. Stateless; any thread.

#include <cstdint>
#include <string>
#include <string_view>

namespace signet::text {

/// Appends the bytes that `spelling` stands for. False when a character is not
/// in the alphabet; `bytes` then ends with the characters before it.
bool AppendAlphabetBytes(std::string_view spelling, std::string* bytes);

/// The character that spells a byte.
char32_t AlphabetCharacter(uint8_t byte);

/// Whether a byte occurs in UTF-8 text at all.
constexpr bool OccursInUtf8(uint8_t byte) {
  return byte < 0xC0 || (byte >= 0xC2 && byte <= 0xF4);
}

}  // namespace signet::text
