#include "cli/chat_loop.h"

#include <fmt/format.h>

#include <cstdio>
#include <span>
#include <utility>
#include <variant>

#include "cli/exit_code.h"
#include "cli/line_reader.h"
#include "cli/report.h"
#include "cli/run_numbers.h"
#include "cli/signals.h"
#include "cli/standard_output.h"

namespace signet::cli {
namespace {

constexpr std::string_view kEndOfThought = "</think>";

// A text that begins inside a thought and was cut short there is all thought:
// taken for the answer, it would be shown to the model as such.
ChatMessage MessageOf(const std::string& text, bool thinking) {
  if (!thinking) return {ChatRole::kAssistant, text, std::string()};
  const size_t end = text.find(kEndOfThought);
  ChatMessage message{.role = ChatRole::kAssistant,
                      .content = {},
                      .reasoning = text.substr(0, end)};
  if (end != std::string::npos) {
    message.content = text.substr(end + kEndOfThought.size());
  }
  return message;
}

bool IsTooLong(const Error& error) {
  const auto* const rejections = std::get_if<Rejections>(&error);
  return rejections != nullptr &&
         rejections->Has(RejectionCode::kPromptTooLong);
}

}  // namespace

ChatLoop::ChatLoop(Session& session, Request request, Chat opening, Form form,
                   int64_t context)
    : session_(session),
      request_(std::move(request)),
      form_(std::move(form)),
      context_(context),
      chat_(std::move(opening)) {}

int ChatLoop::Run() {
  fmt::print(stderr,
             "a line is a message; Ctrl-C ends an answer, Ctrl-D the chat\n");
  LineReader reader;
  while (true) {
    fmt::print(stderr, "> ");
    std::optional<std::string> line = reader.Next();
    if (!line) {
      fmt::print(stderr, "\n");
      return kExitDone;
    }
    if (line->find_first_not_of(" \t\r") == std::string::npos) continue;
    if (const auto code = Answer(*std::move(line))) return *code;
  }
}

// The whole conversation is prefilled for every answer. A sequence's state
// cannot be rewound, and the template leaves out of it what was thought before
// the last message: what the session has seen is never the front of what comes
// next.
std::optional<int> ChatLoop::Answer(std::string message) {
  chat_.messages.push_back({ChatRole::kUser, std::move(message), {}});
  request_.prompt = chat_;
  // Forgets an interrupt that came as the last answer ended by itself.
  session_.Reset();
  RunSink sink(form_, 1, session_);
  {
    const InterruptScope interrupts(session_);
    const Result<void> result =
        session_.Generate(std::span(&request_, 1), sink);
    if (!result) {
      if (std::holds_alternative<Failure>(result.error())) {
        return Report(result.error(), /*json=*/false);
      }
      chat_.messages.pop_back();
      if (IsTooLong(result.error())) {
        fmt::print(stderr,
                   "the conversation no longer fits the context, and this "
                   "message was left out; --ctx sets the positions: {}\n",
                   context_);
      } else {
        Report(result.error(), /*json=*/false);
      }
      return std::nullopt;
    }
  }
  const Generated& made = sink.generated()[0];
  if (sink.output_error() != 0) return ReportClosedOutput(sink.output_error());
  if (made.end.error) return Report(*made.end.error, /*json=*/false);
  chat_.messages.push_back(MessageOf(made.text, chat_.thinking));
  fmt::print(stderr, "{}, {} of {} positions\n", NumbersOf(made.end),
             made.end.prompt_tokens + made.end.tokens, context_);
  if (made.end.context_full) {
    fmt::print(stderr,
               "the context is full, and the answer ends here; --ctx sets the "
               "positions: {}\n",
               context_);
  }
  return std::nullopt;
}

}  // namespace signet::cli
