// The text of a program. What parses is printed as a text that parses to the
// same program (P6).

#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/property.h"
#include "step/program.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr uint64_t kEpoch = 1;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto draft = signet::step::ParseProgram(text, kEpoch);
  if (!draft) return 0;
  const std::string printed = signet::step::ToText(*draft);
  const auto again = signet::step::ParseProgram(printed, kEpoch);
  FUZZ_REQUIRE(again.has_value());
  FUZZ_REQUIRE(signet::step::ToText(*again) == printed);
  return 0;
}
