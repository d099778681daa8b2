#pragma once
// What a session takes for prompts and for batches, measured through the
// public API as a caller would see it. One thread.

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "signet/session.h"

namespace signet::evidence {

/// Prompts of random ids, each another one. The same in every run.
class RandomPrompts {
 public:
  explicit RandomPrompts(int64_t vocab) : vocab_(vocab) {}
  std::vector<int32_t> Next(int64_t length);

 private:
  int64_t vocab_;
  uint32_t made_ = 0;
};

/// Seconds from Generate to the first token, a prompt each; one more runs
/// before them and is not counted.
Result<std::vector<double>> MeasurePrefill(Session& session,
                                           RandomPrompts& prompts,
                                           int64_t length, int repeat);

/// A request as it was served.
struct Sequence {
  std::vector<int32_t> prompt;
  std::vector<int32_t> drawn;
};

/// `batch` requests decoded together, from the moment all have their first
/// token to the moment the first of them ends: `steps` steps of all.
struct DecodeRuns {
  int64_t batch = 0;
  int64_t steps = 0;
  std::vector<double> windows;  // seconds, a window each run
  std::vector<Sequence> last;   // [batch], of the last run
};

/// Each run has prompts of its own and makes `tokens` (2 or more) for each of
/// them, greedily; a shorter one runs before them and is not counted.
Result<DecodeRuns> MeasureDecode(Session& session, RandomPrompts& prompts,
                                 int64_t batch, int64_t prompt_length,
                                 int64_t tokens, int repeat);

}  // namespace signet::evidence
