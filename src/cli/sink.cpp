#include "cli/sink.h"

#include <fmt/format.h>

#include <cerrno>

#include "cli/standard_output.h"

namespace signet::cli {

void RunSink::Write(std::string_view text) {
  if (output_error_ != 0 || WriteOut(text)) return;
  output_error_ = errno;
  session_.Abort();
}

void RunSink::OnToken(const TokenEvent& event) {
  if (show_ == Show::kIds) {
    Write(fmt::format("{}{}", generated_.tokens.empty() ? "" : ",", event.id));
  } else if (show_ == Show::kText) {
    Write(event.text);
  }
  generated_.tokens.push_back(event.id);
  generated_.text += event.text;
}

void RunSink::OnEnd(const EndEvent& event) {
  if (show_ == Show::kText) Write(event.text);
  if (show_ != Show::kNothing) Write("\n");
  generated_.text += event.text;
  generated_.end = event;
  generated_.end.text = {};
}

}  // namespace signet::cli
