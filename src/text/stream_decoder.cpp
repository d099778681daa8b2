#include "text/stream_decoder.h"

#include "text/utf8.h"

namespace signet::text {

StreamDecoder::StreamDecoder(const Tokenizer* tokenizer, Special special)
    : tokenizer_(tokenizer), special_(special) {}

std::string StreamDecoder::Push(int32_t id) {
  if (special_ == Special::kHide && tokenizer_->IsSpecial(id)) return {};
  pending_ += tokenizer_->TokenBytes(id);
  return Drain(/*finish=*/false);
}

std::string StreamDecoder::Finish() { return Drain(/*finish=*/true); }

std::string StreamDecoder::Drain(bool finish) {
  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Step step = ReadUtf8(rest);
    if (step.kind == Utf8Step::Kind::kTruncated && !finish) break;
    text += step.kind == Utf8Step::Kind::kCharacter
                ? rest.substr(0, step.length)
                : kReplacementCharacter;
    rest.remove_prefix(step.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

}  // namespace signet::text
