#pragma once
// Which chat template a checkpoint has. Templates are programs; none is run:
// the canonical one of Qwen3.5 and Qwen3.6 is recognised by the expressions
// that make its text, and text/chat_prompt.h does what it would do. Stateless;
// any thread.

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace signet::text {

/// The template inside tokenizer_config.json; nothing if there is none there.
/// A list of named templates is given as the one named `default`. Any bytes.
std::optional<std::string> TemplateOfConfig(
    std::string_view tokenizer_config_json);

/// kTokenizerUnsupported, with `where`, unless every expression of the
/// canonical template that makes text without tools is there, in its order, and
/// nothing else between those that begin the answer. A template that holds them
/// all and does more besides is not told apart. Any bytes; linear time.
Result<void> RecogniseChatTemplate(std::string_view source,
                                   std::string_view where);

}  // namespace signet::text
