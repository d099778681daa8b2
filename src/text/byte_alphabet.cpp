#include "text/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace signet::text {
namespace {

// Bytes whose own code point is printable spell themselves; the others take
// the code points from U+0100 on, in order.
constexpr bool SpellsItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         byte >= 0xAE;
}

constexpr std::array<char32_t, 256> MakeCharacters() {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    characters[byte] =
        SpellsItself(byte) ? static_cast<char32_t>(byte) : next++;
  }
  return characters;
}

constexpr std::array<char32_t, 256> kCharacters = MakeCharacters();
constexpr char32_t kCharacterBound = 0x144;

constexpr std::array<int16_t, kCharacterBound> MakeBytes() {
  std::array<int16_t, kCharacterBound> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  for (int16_t byte = 0; byte < 256; ++byte) bytes[kCharacters[byte]] = byte;
  return bytes;
}

constexpr std::array<int16_t, kCharacterBound> kBytes = MakeBytes();

}  // namespace

bool AppendAlphabetBytes(std::string_view spelling, std::string* bytes) {
  while (!spelling.empty()) {
    const Utf8Step step = ReadUtf8(spelling);
    if (step.kind != Utf8Step::Kind::kCharacter ||
        step.code_point >= kCharacterBound || kBytes[step.code_point] < 0) {
      return false;
    }
    bytes->push_back(static_cast<char>(kBytes[step.code_point]));
    spelling.remove_prefix(step.length);
  }
  return true;
}

char32_t AlphabetCharacter(uint8_t byte) { return kCharacters[byte]; }

}  // namespace signet::text
