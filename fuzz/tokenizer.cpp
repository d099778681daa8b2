// tokenizer.json, and behind a line of dashes tokenizer_config.json. What is
// accepted encodes any text and gives every byte of it back.

#include "text/tokenizer.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/property.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kDashes = "\n---\n";
  constexpr std::string_view kText =
      "It's 12  o'clock,\r\n\td\u00e9j\u00e0 vu <|end|> \U0001F600";
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t dashes = all.find(kDashes);
  const auto tokenizer = signet::text::Tokenizer::Parse(
      all.substr(0, dashes), dashes == all.npos
                                 ? std::string_view()
                                 : all.substr(dashes + kDashes.size()));
  if (!tokenizer) return 0;
  const auto ids = (*tokenizer)->Encode(kText);
  if (!ids) return 0;  // the regex asks for too much
  std::string decoded;
  for (const int32_t id : *ids) {
    FUZZ_REQUIRE((*tokenizer)->HasToken(id));
    decoded += (*tokenizer)->TokenBytes(id);
  }
  FUZZ_REQUIRE(decoded == kText);
  return 0;
}
