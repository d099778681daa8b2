#include "text/chat_template.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/file_issues.h"
#include "text/tokenizer_document.h"

namespace signet::text {
namespace {

using Json = nlohmann::json;

// What a template must hold, in this order. Each decides something that
// chat_prompt.cpp does: where one differs, so would the prompt.
constexpr std::array<std::string_view, 10> kInOrder = {
    R"('<|im_start|>system\n' + content + '<|im_end|>\n')",
    "content.startswith('<tool_response>') and "
    "content.endswith('</tool_response>')",
    "raise_exception('No user query found in messages.')",
    "raise_exception('System message must be at the beginning.')",
    R"('<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n')",
    R"(.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n'))",
    R"(content.split('</think>')[-1].lstrip('\n'))",
    "loop.index0 > ns.last_query_index",
    R"('\n<think>\n' + reasoning_content + '\n</think>\n\n' + content)",
    R"('<|im_start|>' + message.role + '\n' + content)",
};

// How the answer begins, with nothing but white space between: other templates
// do not think unless they are told to.
constexpr std::array<std::string_view, 8> kAtTheEnd = {
    "{%- if add_generation_prompt %}",
    R"({{- '<|im_start|>assistant\n' }})",
    "{%- if enable_thinking is defined and enable_thinking is false %}",
    R"({{- '<think>\n\n</think>\n\n' }})",
    "{%- else %}",
    R"({{- '<think>\n' }})",
    "{%- endif %}",
    "{%- endif %}",
};

// Qwen3.8 keeps old reasoning unless told otherwise, and asks for an effort.
constexpr std::array<std::string_view, 2> kOfOthers = {
    "preserve_thinking is undefined",
    "reasoning_effort",
};

// Null unless `value` is an object that has text there.
const std::string* TextAt(const Json& value, const char* key) {
  const auto place = value.find(key);
  if (place == value.end()) return nullptr;
  return place->get_ptr<const std::string*>();
}

std::string_view SkipSpace(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first);
}

// Whether `text` is the end of the template, from the generation prompt on.
bool IsTheEnd(std::string_view text) {
  for (const std::string_view piece : kAtTheEnd) {
    text = SkipSpace(text);
    if (!text.starts_with(piece)) return false;
    text.remove_prefix(piece.size());
  }
  return SkipSpace(text).empty();
}

}  // namespace

std::optional<std::string> TemplateOfConfig(
    std::string_view tokenizer_config_json) {
  FileIssues ignored;
  const TokenizerDocument document = ReadTokenizerDocument(
      "tokenizer_config.json", tokenizer_config_json, &ignored);
  const Json& config = document.rest;
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array()) {
    for (const Json& named : *found) {
      const std::string* name = TextAt(named, "name");
      const std::string* source = TextAt(named, "template");
      if (name != nullptr && *name == "default" && source != nullptr) {
        return *source;
      }
    }
  }
  return std::string();  // there is one, and it is not one that we know
}

Result<void> RecogniseChatTemplate(std::string_view source,
                                   std::string_view where) {
  const auto refuse = [&](std::string message, std::string want) {
    return Reject(RejectionCode::kTokenizerUnsupported, std::string(where),
                  std::move(message), {}, std::move(want));
  };
  constexpr const char* kNotCanonical =
      "the chat template is not the canonical one of Qwen3.5 and Qwen3.6";
  size_t at = 0;
  for (const std::string_view piece : kInOrder) {
    at = source.find(piece, at);
    if (at == std::string_view::npos) {
      return refuse(kNotCanonical, Quoted(piece));
    }
    at += piece.size();
  }
  for (const std::string_view piece : kOfOthers) {
    if (source.find(piece) == std::string_view::npos) continue;
    return Reject(RejectionCode::kTokenizerUnsupported, std::string(where),
                  kNotCanonical, Quoted(piece));
  }
  const size_t end = source.find(kAtTheEnd[0], at);
  if (end == std::string_view::npos || !IsTheEnd(source.substr(end))) {
    return refuse(kNotCanonical, "its generation prompt");
  }
  return {};
}

}  // namespace signet::text
