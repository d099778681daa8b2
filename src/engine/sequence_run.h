#pragma once
// One request on its way from prompt to its terminal event: ids, text, stops.
// Knows no device. One thread.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/views.h"
#include "base/id.h"
#include "signet/session.h"
#include "text/stop_matcher.h"
#include "text/stream_decoder.h"

namespace signet {

class SequenceRun {
 public:
  struct Setup {
    size_t index;                      // in the span of requests
    std::vector<int32_t> prompt;       // not empty
    const Request* request;            // outlives the run
    const text::Tokenizer* tokenizer;  // may be null
    std::span<const int32_t> stop_ids;
    int64_t context;
    int32_t id_bound;
  };
  explicit SequenceRun(Setup setup);

  size_t index() const { return setup_.index; }
  std::span<const int32_t> prompt() const { return setup_.prompt; }
  int32_t last_id() const { return last_id_; }
  /// Parameters of the draw whose token will stand at `position`.
  backend::SamplingRow SamplingAt(int64_t position) const;

  /// Takes a drawn token, which stands at `position`, and tells the sink.
  /// Returns how the request ended, if it did.
  std::optional<Finish> Take(int32_t id, int64_t position, Sink& sink);
  /// The terminal event; exactly once. `error` may be null. Where there is no
  /// memory for the text held back, the event is an error that says so.
  void End(Finish finish, const Error* error, Sink& sink);

  /// Seconds since the call began, set by the session for the statistics.
  void MarkStart(double seconds) { start_ = seconds; }
  void MarkToken(double seconds);

  std::optional<SequenceSlot> slot;

 private:
  Setup setup_;
  std::optional<text::StreamDecoder> decoder_;
  text::StopMatcher stops_;
  int32_t last_id_ = 0;
  int64_t tokens_ = 0;
  bool context_full_ = false;
  bool stopped_by_text_ = false;
  double start_ = 0;
  double first_token_ = 0;
  double last_token_ = 0;
};

}  // namespace signet
