#include "text/nfc.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace signet::text {
namespace {

std::string Nfc(std::string_view text) {
  std::string storage;
  return std::string(ToNfc(text, &storage));
}

TEST(NfcTest, ComposesWhatComposes) {
  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"plain", "plain"},
      {"caf\u00E9 e\u0301", "caf\u00E9 \u00E9"},
      {"\u212B \u2126 \u212A", "\u00C5 \u03A9 K"},  // singletons
      {"\u1100\u1161\u11A8", "\uAC01"},             // Hangul
      {"\uAC00\u11A8", "\uAC01"},
      {"\u0958", "\u0915\u093C"},          // never composed
      {"a\u0305\u0301", "a\u0305\u0301"},  // blocked
      {"q\u0307\u0323", "q\u0323\u0307"},  // ordered
      {"d\u0307\u0323", "\u1E0D\u0307"},   // ordered, then composed
      {"\u1E9B\u0323", "\u1E9B\u0323"},
      {"\u304B\u3099", "\u304C"},
      {"\U00011935\U00011930", "\U00011938"},
      {"\u0301", "\u0301"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(Nfc(text), expected);
}

TEST(NfcTest, TextThatIsCertainlyNfcIsNotCopied) {
  std::string storage;
  const std::string_view text = "caf\u00E9 \u4E2D\u6587";
  EXPECT_EQ(ToNfc(text, &storage).data(), text.data());
}

TEST(NfcTest, LongRunsOfMarksAreOrderedStably) {
  std::string text = "q";
  std::string above;
  std::string below;
  for (int i = 0; i < 100000; ++i) {
    text += i % 2 == 0 ? "\u0301\u0323" : "\u0300\u0324";
    above += i % 2 == 0 ? "\u0301" : "\u0300";
    below += i % 2 == 0 ? "\u0323" : "\u0324";
  }
  EXPECT_EQ(Nfc(text), "q" + below + above);
}

}  // namespace
}  // namespace signet::text
