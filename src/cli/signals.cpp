#include "cli/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string_view>
#include <thread>

#include "cli/exit_code.h"

namespace signet::cli {
namespace {

// A handler sees nothing but globals.
std::atomic<Session*> g_session = nullptr;
std::atomic<std::atomic<bool>*> g_stop = nullptr;
std::atomic<int> g_handlers_running = 0;
std::atomic<bool> g_is_interrupted = false;
std::atomic<bool> g_is_ending = false;
std::atomic<bool> g_json = false;
std::atomic<bool> g_is_dim = false;
static_assert(std::atomic<Session*>::is_always_lock_free);
static_assert(std::atomic<bool>::is_always_lock_free);

void WriteFromHandler(int file, std::string_view text) {
  // Nothing can be done about a failure: the process is ending.
  [[maybe_unused]] const ssize_t written =
      write(file, text.data(), text.size());
}

void EndDimText() {
  if (g_is_dim) WriteFromHandler(STDOUT_FILENO, "\033[0m\n");
}

void OnInterrupt(int) {
  ++g_handlers_running;
  Session* const session = g_session;
  std::atomic<bool>* const stop = g_stop;
  const bool can_wait = session != nullptr || stop != nullptr;
  if (!can_wait || g_is_interrupted.exchange(true)) {
    EndDimText();
    _exit(kExitInterrupted);
  }
  if (session != nullptr) session->Abort();
  if (stop != nullptr) *stop = true;
  --g_handlers_running;
}

void OnBusError(int, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {
    // Returning repeats the access, now under the default action.
    signal(SIGBUS, SIG_DFL);
    return;
  }
  // All threads of a kernel meet the gap at once; the first one ends them.
  while (g_is_ending.exchange(true)) pause();
  EndDimText();
  if (g_json) {
    WriteFromHandler(
        STDOUT_FILENO,
        "{\"failure\":{\"kind\":\"changed_file\",\"where\":\"\",\"message\":"
        "\"a mapped checkpoint file was truncated while in use\"}}\n");
  } else {
    WriteFromHandler(STDERR_FILENO,
                     "a mapped checkpoint file was truncated while in use\n");
  }
  _exit(kExitFailed);
}

}  // namespace

void InstallSignalHandlers() {
  struct sigaction interrupt = {};
  interrupt.sa_handler = OnInterrupt;
  interrupt.sa_flags = SA_RESTART;
  sigaction(SIGINT, &interrupt, nullptr);

  struct sigaction bus_error = {};
  bus_error.sa_sigaction = OnBusError;
  bus_error.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &bus_error, nullptr);

  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
}

void TellSignalsInJson() { g_json = true; }

void TellSignalsOfDimText(bool dim) { g_is_dim = dim; }

InterruptScope::InterruptScope(Session& session) {
  g_is_interrupted = false;
  g_session = &session;
}

InterruptScope::InterruptScope(std::atomic<bool>& stop) {
  g_is_interrupted = false;
  g_stop = &stop;
}

InterruptScope::~InterruptScope() {
  g_session = nullptr;
  g_stop = nullptr;
  // A handler on another thread may still be calling Abort.
  while (g_handlers_running != 0) std::this_thread::yield();
}

bool IsInterrupted() { return g_is_interrupted; }

}  // namespace signet::cli
