// A tokenizer's regex on the first line, and the text it cuts in the others:
// the pieces are the text, and the time is in proportion to it.

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fuzz/property.h"
#include "text/file_issues.h"
#include "text/splitter.h"
#include "text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace signet::text;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(all.find('\n'), all.size());
  const std::string_view text = all.substr(std::min(line + 1, all.size()));
  // The callers have seen to both.
  if (FindInvalidUtf8(all) != all.npos) return 0;
  FileIssues issues;
  const auto splitter = Splitter::Compile(all.substr(0, line), "fuzz", &issues);
  FUZZ_REQUIRE((splitter == nullptr) == !issues.empty());
  if (splitter == nullptr) return 0;
  std::vector<size_t> ends;
  if (!splitter->Split(text, &ends)) return 0;
  size_t last = 0;
  for (const size_t end : ends) {
    FUZZ_REQUIRE(end > last);
    last = end;
  }
  FUZZ_REQUIRE(last == text.size());
  return 0;
}
