#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace signet::text {

StopMatcher::StopMatcher(std::vector<std::string> sequences) {
  for (std::string& bytes : sequences) {
    if (bytes.empty()) continue;
    Sequence sequence{std::move(bytes), {0}, 0};
    for (size_t i = 1; i < sequence.bytes.size(); ++i) {
      Advance(&sequence, sequence.bytes[i]);
      sequence.fallback.push_back(sequence.matched);
    }
    sequence.matched = 0;
    sequences_.push_back(std::move(sequence));
  }
}

void StopMatcher::Advance(Sequence* sequence, char byte) {
  size_t& matched = sequence->matched;
  while (matched > 0 && sequence->bytes[matched] != byte) {
    matched = sequence->fallback[matched - 1];
  }
  if (sequence->bytes[matched] == byte) ++matched;
}

StopMatcher::Piece StopMatcher::Push(std::string_view text) {
  Piece piece;
  piece.stopped = stopped_;
  if (stopped_) return piece;
  size_t held = 0;
  for (const char byte : text) {
    pending_ += byte;
    size_t found = 0;
    held = 0;
    for (Sequence& sequence : sequences_) {
      Advance(&sequence, byte);
      held = std::max(held, sequence.matched);
      if (sequence.matched == sequence.bytes.size()) {
        found = std::max(found, sequence.matched);
      }
    }
    if (found == 0) continue;
    stopped_ = piece.stopped = true;
    pending_.resize(pending_.size() - found);
    piece.text = std::exchange(pending_, {});
    return piece;
  }
  if (text.empty()) return piece;
  piece.text = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, pending_.size() - held);
  return piece;
}

std::string StopMatcher::Finish() { return std::exchange(pending_, {}); }

}  // namespace signet::text
