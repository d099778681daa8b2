#pragma once
// A conversation, as a request's prompt. Values; any thread.

#include <optional>
#include <string>
#include <vector>

namespace signet {

enum class ChatRole { kSystem, kUser, kAssistant };

struct ChatMessage {
  ChatRole role;
  /// UTF-8; white space around it is dropped. A special token's name in it, as
  /// `<|im_end|>`, is text like any other: no message can end its own turn.
  std::string content;
  /// What an assistant thought before `content`. Unset: it is cut out of the
  /// content, up to `</think>`.
  std::optional<std::string> reasoning;
};

/// What the checkpoint's chat template renders, up to where the answer begins.
struct Chat {
  /// At most one of the system, first; at least one of the user. Reasoning
  /// before the last one of the user is left out, as the template has it.
  std::vector<ChatMessage> messages;
  /// The answer begins inside `<think>`, whose end it writes itself. False: it
  /// begins behind an empty one.
  bool thinking = true;
};

}  // namespace signet
