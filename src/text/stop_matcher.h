#pragma once
// Finds stop sequences in text that arrives in pieces. Holds back the longest
// tail that could still begin a stop sequence. How the text is cut into pieces
// changes nothing but when it is shown. One thread.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace signet::text {

class StopMatcher {
 public:
  /// Empty sequences are ignored.
  explicit StopMatcher(std::vector<std::string> sequences);

  struct Piece {
    std::string text;      // safe to show
    bool stopped = false;  // a stop sequence was found; `text` ends before it
  };
  /// Stops at the sequence that is complete first; of several that end at the
  /// same byte, at the longest. Linear in the length of `text`. After
  /// `stopped`, further pushes return no text.
  Piece Push(std::string_view text);
  /// The held-back tail, once no more text comes.
  std::string Finish();

 private:
  // One sequence as a Knuth-Morris-Pratt automaton: `matched` bytes of it end
  // the text so far, and `fallback[k]` is the longest proper border of its
  // first k + 1 bytes.
  struct Sequence {
    std::string bytes;
    std::vector<size_t> fallback;
    size_t matched = 0;
  };
  static void Advance(Sequence* sequence, char byte);

  std::vector<Sequence> sequences_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace signet::text
