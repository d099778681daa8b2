#pragma once
// Signals, as the process answers them. SIGINT: the first one while text is
// generated aborts the session, so that the text so far is kept; any other
// ends the process at once, with 130. SIGBUS: a file under a mapping was cut
// short; one message, 1. SIGPIPE: ignored, the write fails instead.

#include "signet/session.h"

namespace signet::cli {

/// Once, before any other thread exists.
void InstallSignalHandlers();

/// The SIGBUS message is one object on stdout from here on.
void TellSignalsInJson();

/// While it lives, SIGINT aborts `session`. One at a time.
class InterruptScope {
 public:
  explicit InterruptScope(Session& session);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
};

/// Whether a SIGINT has aborted a session.
bool IsInterrupted();

}  // namespace signet::cli
