#include "text/utf8.h"

#include <cstdint>
#include <cstring>

namespace signet::text {
namespace {

// Bounds of the second byte and the number of continuation bytes that a lead
// byte asks for; count 0: the byte leads nothing.
struct Lead {
  uint8_t count;
  uint8_t second_low;
  uint8_t second_high;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte < 0xF0) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte < 0xF4) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step ReadUtf8(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t first = at(0);
  if (first < 0x80) return {Utf8Step::Kind::kCharacter, 1, first};
  const Lead lead = LeadOf(first);
  if (lead.count == 0) return {Utf8Step::Kind::kInvalid, 1, 0};
  char32_t code_point = first & (0x3Fu >> lead.count);
  for (size_t i = 1; i <= lead.count; ++i) {
    if (i == bytes.size()) return {Utf8Step::Kind::kTruncated, i, 0};
    const uint8_t low = i == 1 ? lead.second_low : 0x80;
    const uint8_t high = i == 1 ? lead.second_high : 0xBF;
    if (at(i) < low || at(i) > high) return {Utf8Step::Kind::kInvalid, i, 0};
    code_point = (code_point << 6) | (at(i) & 0x3Fu);
  }
  return {Utf8Step::Kind::kCharacter, lead.count + 1u, code_point};
}

size_t FindInvalidUtf8(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    // Eight ASCII bytes at a time: most prompts are mostly ASCII.
    uint64_t word = 0;
    while (at + sizeof(word) <= bytes.size()) {
      std::memcpy(&word, bytes.data() + at, sizeof(word));
      if ((word & 0x8080808080808080u) != 0) break;
      at += sizeof(word);
    }
    if (at == bytes.size()) break;
    const Utf8Step step = ReadUtf8(bytes.substr(at));
    if (step.kind != Utf8Step::Kind::kCharacter) return at;
    at += step.length;
  }
  return std::string_view::npos;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto push = [out](char32_t bits) {
    out->push_back(static_cast<char>(static_cast<uint8_t>(bits)));
  };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xC0 | (code_point >> 6));
    push(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    push(0xE0 | (code_point >> 12));
    push(0x80 | ((code_point >> 6) & 0x3F));
    push(0x80 | (code_point & 0x3F));
  } else {
    push(0xF0 | (code_point >> 18));
    push(0x80 | ((code_point >> 12) & 0x3F));
    push(0x80 | ((code_point >> 6) & 0x3F));
    push(0x80 | (code_point & 0x3F));
  }
}

}  // namespace signet::text
