// What a user types and a model answers: stop sequences on the first line,
// parted by tabs, then text. Text is encoded and decoded, raw bytes are taken
// as ids, and the stop matcher must not care how text is cut into pieces.
// A chat template is rendered to text before it comes here.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/property.h"
#include "text/stop_matcher.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"
#include "text/tokenizer_testing.h"
#include "text/utf8.h"

namespace {

using namespace signet::text;

std::shared_ptr<const Tokenizer> MakeTokenizer() {
  nlohmann::json file = ByteTokenizerJson();
  AddMerge(&file, "a", "a", 256);
  AddMerge(&file, "aa", "aa", 257);
  AddMerge(&file, " ", "t", 258);
  AddMerge(&file, "\xcc", "\x81", 259);
  file["added_tokens"].push_back(AddedTokenJson(300, "<|im_start|>", true));
  file["added_tokens"].push_back(AddedTokenJson(301, "<|im_end|>", true));
  file["added_tokens"].push_back(AddedTokenJson(302, "<think>", false));
  return *Tokenizer::Parse(file.dump(), "");
}

std::string Decode(const Tokenizer& tokenizer,
                   const std::vector<int32_t>& ids) {
  StreamDecoder decoder(&tokenizer, StreamDecoder::Special::kShow);
  std::string text;
  for (const int32_t id : ids) text += decoder.Push(id);
  return text + decoder.Finish();
}

// What is shown in all, and whether it stopped.
std::pair<std::string, bool> Match(const std::vector<std::string>& stops,
                                   std::string_view text, size_t piece) {
  StopMatcher matcher(stops);
  std::string shown;
  bool stopped = false;
  for (size_t at = 0; at < text.size(); at += piece) {
    const StopMatcher::Piece one = matcher.Push(text.substr(at, piece));
    FUZZ_REQUIRE(!stopped || one.text.empty());
    shown += one.text;
    stopped = stopped || one.stopped;
  }
  if (!stopped) shown += matcher.Finish();
  return {shown, stopped};
}

std::vector<std::string> Split(std::string_view line) {
  std::vector<std::string> parts;
  while (true) {
    const size_t tab = line.find('\t');
    parts.emplace_back(line.substr(0, tab));
    if (tab == line.npos) return parts;
    line.remove_prefix(tab + 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<const Tokenizer> tokenizer = MakeTokenizer();
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(all.find('\n'), all.size());
  const std::string_view text = all.substr(std::min(line + 1, all.size()));

  const std::vector<std::string> stops = Split(all.substr(0, line));
  const auto whole = Match(stops, text, text.size() + 1);
  FUZZ_REQUIRE(Match(stops, text, 1) == whole);
  FUZZ_REQUIRE(Match(stops, text, 3) == whole);

  // Any ids give text.
  std::vector<int32_t> raw;
  for (const char byte : text) raw.push_back(static_cast<uint8_t>(byte));
  FUZZ_REQUIRE(FindInvalidUtf8(Decode(*tokenizer, raw)) ==
               std::string_view::npos);

  const auto ids = tokenizer->Encode(text);
  FUZZ_REQUIRE(ids.has_value() == (FindInvalidUtf8(text) == text.npos));
  if (!ids) return 0;
  const std::string decoded = Decode(*tokenizer, *ids);
  const auto again = tokenizer->Encode(decoded);
  FUZZ_REQUIRE(again.has_value());
  FUZZ_REQUIRE(Decode(*tokenizer, *again) == decoded);  // normalised once
  return 0;
}
