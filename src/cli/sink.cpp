#include "cli/sink.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "cli/signals.h"
#include "cli/standard_output.h"

namespace signet::cli {

RunSink::RunSink(Form form, size_t num_requests, Session& session)
    : form_(std::move(form)),
      session_(session),
      generated_(num_requests),
      held_(num_requests),
      ended_(num_requests),
      style_(form_.dims, form_.thinks) {}

void RunSink::Write(std::string_view text) {
  if (text.empty() || output_error_ != 0) return;
  // Whatever ends the process from here on takes back the style.
  if (style_.is_dim()) TellSignalsOfDimText(true);
  if (!WriteOut(text)) {
    output_error_ = errno;
    session_.Abort();
  }
  if (!style_.is_dim()) TellSignalsOfDimText(false);
}

void RunSink::Begin() {
  if (begun_) return;
  begun_ = true;
  style_ = ThinkingStyle(form_.dims, form_.thinks);
  if (form_.titles.empty()) return;
  Write(fmt::format("{}=== {}: {}\n", front_ == 0 ? "" : "\n", front_ + 1,
                    form_.titles[front_]));
}

void RunSink::Put(size_t request, std::string_view text) {
  if (request != front_) {
    held_[request] += text;
    return;
  }
  Begin();
  Write(style_.Push(text));
}

void RunSink::Close() {
  // A prompt that an interrupt kept from its turn is not worth a title.
  const Generated& made = generated_[front_];
  const bool is_missed = !form_.titles.empty() && made.tokens.empty() &&
                         made.end.finish == Finish::kAborted;
  if (!is_missed) {
    Begin();
    Write(style_.Finish());
    Write("\n");
  }
  begun_ = false;
}

void RunSink::OnPrompt(const PromptEvent& event) {
  // Not into the midst of a text.
  if (form_.tells_progress && !begun_) prompt_bar_.Update(event);
}

void RunSink::OnToken(const TokenEvent& event) {
  prompt_bar_.Clear();
  Generated& made = generated_[event.request];
  if (form_.show == Show::kIds) {
    Put(event.request,
        fmt::format("{}{}", made.tokens.empty() ? "" : ",", event.id));
  } else if (form_.show == Show::kText) {
    Put(event.request, event.text);
  }
  made.tokens.push_back(event.id);
  made.text += event.text;
}

void RunSink::OnEnd(const EndEvent& event) {
  prompt_bar_.Clear();
  Generated& made = generated_[event.request];
  if (form_.show == Show::kText) Put(event.request, event.text);
  made.text += event.text;
  made.end = event;
  made.end.text = {};
  ended_[event.request] = true;
  if (form_.show == Show::kNothing) return;
  while (front_ < ended_.size() && ended_[front_]) {
    Close();
    ++front_;
    if (front_ == ended_.size() || held_[front_].empty()) continue;
    Put(front_, std::exchange(held_[front_], {}));
  }
}

}  // namespace signet::cli
