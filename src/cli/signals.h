#pragma once
// Signals, as the process answers them. SIGINT: the first one while text is
// generated aborts the session, so that the text so far is kept, and while a
// checkpoint is written stops that, so that nothing is left half-written; any
// other ends the process at once, with 130. SIGBUS: a file under a mapping was
// cut short; one message, 1. SIGPIPE: ignored, the write fails instead.

#include <atomic>

#include "signet/session.h"

namespace signet::cli {

/// Once, before any other thread exists.
void InstallSignalHandlers();

/// The SIGBUS message is one object on stdout from here on.
void TellSignalsInJson();

/// Whether standard output, a terminal, is in the dim style: a signal that ends
/// the process then takes it back.
void TellSignalsOfDimText(bool dim);

/// While it lives, the first SIGINT aborts `session`, or sets `stop`. One at a
/// time; each begins anew.
class InterruptScope {
 public:
  explicit InterruptScope(Session& session);
  explicit InterruptScope(std::atomic<bool>& stop);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
};

/// Whether a SIGINT has aborted the session, or set the stop, of the last
/// scope.
bool IsInterrupted();

}  // namespace signet::cli
