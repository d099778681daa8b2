#pragma once
// Text from token ids as they come. Never emits part of a UTF-8 character:
// bytes are held back until they complete one; a byte sequence that can never
// become valid is emitted as U+FFFD, by the rule of maximal subparts (Unicode
// 3.9), which is what the reference decoder prints. One thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace signet::text {

class StreamDecoder {
 public:
  /// A hidden token leaves its neighbours adjacent: bytes before and after it
  /// may make one character.
  enum class Special { kHide, kShow };

  /// `tokenizer` must outlive the decoder.
  explicit StreamDecoder(const Tokenizer* tokenizer,
                         Special special = Special::kHide);

  /// The complete characters that `id` makes available; may be empty.
  std::string Push(int32_t id);
  /// What is still held back, incomplete characters replaced by U+FFFD.
  std::string Finish();

 private:
  std::string Drain(bool finish);
  const Tokenizer* tokenizer_;
  Special special_;
  std::string pending_;
};

}  // namespace signet::text
