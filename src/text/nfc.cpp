#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/check.h"
#include "text/utf8.h"

namespace signet::text {
namespace {

// Blocks of characters that neither decompose nor take part in a composition
// as its second part; most prompts have no others.
bool IsInert(char32_t character) {
  return character < 0x300 || (character >= 0x4E00 && character <= 0x9FFF);
}

bool IsInert(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = ReadUtf8(text);
    if (!IsInert(step.code_point)) return false;
    text.remove_prefix(step.length);
  }
  return true;
}

struct Mark {
  utf8proc_int32_t code_point;
  int combining_class;
};

// The library orders marks by repeated swaps, which is quadratic on a run of
// marks; this is the same order by a stable sort.
void OrderMarks(std::vector<utf8proc_int32_t>* code_points) {
  std::vector<Mark> run;
  size_t run_begin = 0;
  const auto flush = [&] {
    std::ranges::stable_sort(run, {}, &Mark::combining_class);
    for (const Mark& mark : run) (*code_points)[run_begin++] = mark.code_point;
    run.clear();
  };
  for (size_t i = 0; i < code_points->size(); ++i) {
    const utf8proc_int32_t code_point = (*code_points)[i];
    const int combining_class =
        utf8proc_get_property(code_point)->combining_class;
    if (combining_class == 0) {
      flush();
    } else {
      if (run.empty()) run_begin = i;
      run.push_back({code_point, combining_class});
    }
  }
  flush();
}

}  // namespace

std::string_view ToNfc(std::string_view text, std::string* storage) {
  if (IsInert(text)) return text;
  constexpr auto kOptions =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  // No canonical decomposition has more than four code points.
  constexpr size_t kMaxDecomposed = 8;
  std::vector<utf8proc_int32_t> code_points;
  code_points.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Step step = ReadUtf8(rest);
    utf8proc_int32_t decomposed[kMaxDecomposed];
    int boundary_class = UTF8PROC_BOUNDCLASS_START;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(step.code_point), decomposed,
        kMaxDecomposed, kOptions, &boundary_class);
    SIGNET_CHECK(count >= 0 && count <= static_cast<int>(kMaxDecomposed));
    code_points.insert(code_points.end(), decomposed, decomposed + count);
    rest.remove_prefix(step.length);
  }
  OrderMarks(&code_points);
  const utf8proc_ssize_t length = utf8proc_normalize_utf32(
      code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()),
      kOptions);
  SIGNET_CHECK(length >= 0);
  storage->clear();
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    AppendUtf8(static_cast<char32_t>(code_points[i]), storage);
  }
  return *storage;
}

}  // namespace signet::text
