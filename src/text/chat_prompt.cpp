#include "text/chat_prompt.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "text/utf8.h"

namespace signet::text {
namespace {

constexpr std::string_view kStartOfTurn = "<|im_start|>";
constexpr std::string_view kThink = "<think>";
constexpr std::string_view kEndOfThink = "</think>";

// What Python's str.strip drops: the template's `trim` is that. It is not
// Unicode's White_Space, which lacks U+001C ... U+001F.
bool IsPythonSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 ||
         c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

// `text` is UTF-8.
std::string_view Trim(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = ReadUtf8(text);
    if (!IsPythonSpace(step.code_point)) break;
    text.remove_prefix(step.length);
  }
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while ((static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!IsPythonSpace(ReadUtf8(text.substr(begin)).code_point)) break;
    end = begin;
  }
  return text.substr(0, end);
}

std::string_view TrimNewlinesLeft(std::string_view text) {
  const size_t first = text.find_first_not_of('\n');
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first);
}

struct Answer {
  std::string_view reasoning;
  std::string_view content;
};

// The reasoning stands before the first end of a thought, behind the last
// begin of one there; the content behind the last end.
Answer SplitAnswer(const ChatMessage& message) {
  const std::string_view content = Trim(message.content);
  if (message.reasoning) return {Trim(*message.reasoning), content};
  const size_t end = content.find(kEndOfThink);
  if (end == std::string_view::npos) return {{}, content};
  std::string_view reasoning = content.substr(0, end);
  const size_t begin = reasoning.rfind(kThink);
  if (begin != std::string_view::npos) {
    reasoning.remove_prefix(begin + kThink.size());
  }
  return {Trim(reasoning),
          TrimNewlinesLeft(
              content.substr(content.rfind(kEndOfThink) + kEndOfThink.size()))};
}

class Prompt {
 public:
  Prompt& Token(std::string_view name) {
    pieces_.push_back({true, std::string(name)});
    return *this;
  }
  Prompt& Text(std::string_view text) {
    if (text.empty()) return *this;
    if (pieces_.empty() || pieces_.back().is_token) pieces_.push_back({});
    pieces_.back().text += text;
    return *this;
  }
  std::vector<ChatPiece> Take() { return std::move(pieces_); }

 private:
  std::vector<ChatPiece> pieces_;
};

bool IsToolResponse(std::string_view content) {
  return content.starts_with("<tool_response>") &&
         content.ends_with("</tool_response>");
}

Result<void> CheckUtf8(std::string_view text, size_t message) {
  const size_t at = FindInvalidUtf8(text);
  if (at == std::string_view::npos) return {};
  return Reject(RejectionCode::kRequestInvalid,
                fmt::format("message {} byte {}", message, at),
                "the text is not UTF-8",
                fmt::format("0x{:02X}", static_cast<uint8_t>(text[at])));
}

Result<void> CheckUtf8(const Chat& chat) {
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    const ChatMessage& message = chat.messages[i];
    SIGNET_RETURN_IF_ERROR(CheckUtf8(message.content, i));
    if (message.reasoning) {
      SIGNET_RETURN_IF_ERROR(CheckUtf8(*message.reasoning, i));
    }
  }
  return {};
}

// Index of the last query of the user.
Result<size_t> CheckOrder(const Chat& chat) {
  if (chat.messages.empty()) {
    return Reject(RejectionCode::kRequestInvalid, "chat",
                  "the conversation has no message");
  }
  std::optional<size_t> query;
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    const ChatMessage& message = chat.messages[i];
    if (message.role == ChatRole::kSystem && i > 0) {
      return Reject(RejectionCode::kRequestInvalid,
                    fmt::format("message {}", i),
                    "a system message is not the first one");
    }
    if (message.role == ChatRole::kUser &&
        !IsToolResponse(Trim(message.content))) {
      query = i;
    }
  }
  if (query) return *query;
  return Reject(RejectionCode::kRequestInvalid, "chat",
                "the conversation has no query of the user");
}

void AddAnswer(const ChatMessage& message, bool with_reasoning,
               Prompt* prompt) {
  const Answer answer = SplitAnswer(message);
  prompt->Token(kStartOfTurn).Text("assistant\n");
  if (with_reasoning) {
    prompt->Token(kThink).Text("\n").Text(answer.reasoning).Text("\n");
    prompt->Token(kEndOfThink).Text("\n\n");
  }
  prompt->Text(answer.content).Token(kEndOfTurn).Text("\n");
}

}  // namespace

Result<std::vector<ChatPiece>> RenderChat(const Chat& chat) {
  SIGNET_RETURN_IF_ERROR(CheckUtf8(chat));
  SIGNET_ASSIGN_OR_RETURN(const size_t last_query, CheckOrder(chat));
  Prompt prompt;
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    const ChatMessage& message = chat.messages[i];
    if (message.role == ChatRole::kAssistant) {
      AddAnswer(message, /*with_reasoning=*/i > last_query, &prompt);
      continue;
    }
    prompt.Token(kStartOfTurn)
        .Text(message.role == ChatRole::kSystem ? "system\n" : "user\n")
        .Text(Trim(message.content))
        .Token(kEndOfTurn)
        .Text("\n");
  }
  prompt.Token(kStartOfTurn).Text("assistant\n").Token(kThink);
  if (chat.thinking) {
    prompt.Text("\n");
  } else {
    prompt.Text("\n\n").Token(kEndOfThink).Text("\n\n");
  }
  return prompt.Take();
}

Result<void> CheckChatTokens(const Tokenizer& tokenizer) {
  RejectionList missing;
  for (const std::string_view name :
       {kStartOfTurn, kEndOfTurn, kThink, kEndOfThink}) {
    if (tokenizer.FindAdded(name)) continue;
    missing.Add(
        RejectionCode::kTokenizerUnsupported, "tokenizer.json: added_tokens",
        "a token of the chat template is missing", {}, std::string(name));
  }
  if (missing.empty()) return {};
  return missing.Take();
}

Result<std::vector<int32_t>> EncodeChat(const Tokenizer& tokenizer,
                                        const Chat& chat) {
  SIGNET_ASSIGN_OR_RETURN(const std::vector<ChatPiece> pieces,
                          RenderChat(chat));
  std::vector<int32_t> ids;
  for (const ChatPiece& piece : pieces) {
    if (piece.is_token) {
      const std::optional<int32_t> id = tokenizer.FindAdded(piece.text);
      SIGNET_CHECK(id.has_value());
      ids.push_back(*id);
      continue;
    }
    SIGNET_ASSIGN_OR_RETURN(
        const std::vector<int32_t> more,
        tokenizer.Encode(piece.text, Tokenizer::Specials::kAreText));
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

}  // namespace signet::text
