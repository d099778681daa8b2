#pragma once
// Generation. A Session owns the state of its sequence slots (KV, recurrent,
// conv); one thread drives it. Only Abort may come from another thread or a
// signal handler. Several sessions of one model may run at once.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "signet/chat.h"
#include "signet/engine.h"
#include "signet/error.h"

namespace signet {

struct Request {
  /// Token ids, text to encode as it is, or a conversation to render.
  std::variant<std::vector<int32_t>, std::string, Chat> prompt;
  int64_t max_tokens = 128;  // generated at most; >= 1
  Sampling sampling;
  std::vector<std::string> stops;  // generation ends before any of them
  bool ignore_eos = false;
  /// Key of the random numbers beside seed and position: the caller's number.
  /// Requests of one seed that differ in it draw independently.
  uint32_t sequence = 0;
  /// What rejections call it; empty: `request N`, its index.
  std::string name;
};

enum class Finish {
  kStop,     // a stop id or a stop sequence
  kLength,   // max_tokens, or the context is full
  kAborted,  // Abort()
  kError,
};
std::string_view Name(Finish finish);

/// A prompt is being read, chunk by chunk.
struct PromptEvent {
  size_t request;  // index in the span given to Generate
  int64_t read;    // tokens of the prompt so far, less than all
  int64_t tokens;  // of the prompt
};

struct TokenEvent {
  size_t request;  // index in the span given to Generate
  int32_t id;
  std::string_view text;  // complete characters, maybe none; empty without a
                          // tokenizer
};

/// The one terminal event of a request.
struct EndEvent {
  size_t request;
  Finish finish;
  std::string_view text;                // what the decoder still held back
  std::optional<Error> error;           // kError
  bool context_full = false;            // kLength because the context ended
  int64_t prompt_tokens = 0;            // ids of the prompt
  int64_t tokens = 0;                   // generated, the stop id not counted
  double first_token_ms = 0;            // from Generate to the first token
  double decode_tokens_per_second = 0;  // after the first token; 0 if under 2
};

/// Told of a Generate while it runs, on its thread. Views are valid during the
/// call alone. It must not throw, and must not call the session but for Abort.
class Sink {
 public:
  virtual ~Sink() = default;
  /// After each chunk of a prompt but the last, which gives a token.
  virtual void OnPrompt(const PromptEvent& event) { (void)event; }
  virtual void OnToken(const TokenEvent& event) = 0;
  virtual void OnEnd(const EndEvent& event) = 0;
};

class Session {
 public:
  /// State for `slots` sequences, 1 ... the plan's batch, and the threads that
  /// run them. kRequestInvalid for another number; Failure: kMemory, kDevice,
  /// and kState once the model is unloaded.
  static Result<Session> Make(const Model& model, int64_t slots);
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  /// Runs the requests to their ends, as many at once as there are slots; each
  /// gets exactly one EndEvent. Fails without any event when a request is
  /// refused (kRequestInvalid, kPromptTooLong), memory to begin with is short,
  /// or the session needs a Reset (kState): it does after an EndEvent of
  /// kError.
  Result<void> Generate(std::span<const Request> requests, Sink& sink);
  /// Ends the running Generate at its next step, or the next Generate when none
  /// runs: every unfinished request gets kAborted. Reset forgets it.
  /// Async-signal-safe.
  void Abort() noexcept;
  /// Back to the state of a fresh session, bit for bit.
  void Reset();

  struct Impl;

 private:
  static Result<Session> MakeHere(const Model& model, int64_t slots);
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace signet
