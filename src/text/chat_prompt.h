#pragma once
// What the canonical chat template of Qwen3.5 and Qwen3.6 makes of a
// conversation without tools, natively. Stateless; any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "signet/chat.h"
#include "text/tokenizer.h"

namespace signet::text {

/// Part of a rendered conversation: one token of the template by its name, or
/// text between two of them.
struct ChatPiece {
  bool is_token;
  std::string text;
  friend bool operator==(const ChatPiece&, const ChatPiece&) = default;
};

/// kRequestInvalid, as the template raises: no message, a system message that
/// is not the first, no query of the user; and content that is not UTF-8. Two
/// texts never follow each other, and none is empty.
Result<std::vector<ChatPiece>> RenderChat(const Chat& chat);

/// The tokens the template itself writes, all of them added tokens of
/// `tokenizer`; else kTokenizerUnsupported with each that is missing.
Result<void> CheckChatTokens(const Tokenizer& tokenizer);

/// The rendered conversation as ids. `tokenizer` passes CheckChatTokens.
/// Special tokens come from the template alone: their names in a message are
/// text. Other added tokens, as `<think>`, are recognised there, as in any
/// text.
Result<std::vector<int32_t>> EncodeChat(const Tokenizer& tokenizer,
                                        const Chat& chat);

/// The token that ends a turn.
inline constexpr std::string_view kEndOfTurn = "<|im_end|>";

}  // namespace signet::text
