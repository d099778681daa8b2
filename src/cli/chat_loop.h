#pragma once
// The chat on a terminal: a line is a message, the answer comes as it is made,
// and the conversation is kept. Ctrl-C ends the answer, a second one the
// program; so does the end of the input. One thread.

#include <cstdint>
#include <optional>
#include <string>

#include "cli/sink.h"
#include "signet/chat.h"
#include "signet/session.h"

namespace signet::cli {

class ChatLoop {
 public:
  /// `request` says how each answer is generated; its prompt is not used.
  /// `opening` is the conversation before its first message. `context` is the
  /// plan's. The session must outlive this.
  ChatLoop(Session& session, Request request, Chat opening, Form form,
           int64_t context);

  /// To the end of the input; the exit code.
  int Run();

 private:
  /// The exit code if the program ends with this message.
  std::optional<int> Answer(std::string message);

  Session& session_;
  Request request_;
  Form form_;
  int64_t context_;
  Chat chat_;
};

}  // namespace signet::cli
