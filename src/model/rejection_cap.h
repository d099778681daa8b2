#pragma once
// Keeps a list of like refusals readable: the first twenty names of one code,
// then how many more there were. Owned by one maker; one thread.

#include <array>
#include <string>
#include <utility>

#include "base/result.h"

namespace signet::model {

class CappedRejections {
 public:
  static constexpr int kMaxOfOneCode = 20;

  void Add(RejectionCode code, std::string where, std::string message,
           std::string got = {}, std::string want = {}) {
    if (++counts_[static_cast<size_t>(code)] > kMaxOfOneCode) return;
    list_.Add(code, std::move(where), std::move(message), std::move(got),
              std::move(want));
  }
  /// True when another refusal of this code would only be counted: a caller
  /// with millions of them may then pass an empty text.
  bool IsFull(RejectionCode code) const { return count(code) >= kMaxOfOneCode; }
  /// Adds for each code that overflowed one refusal that says by how many.
  void FlushInto(const std::string& where, RejectionList* out);
  bool empty() const { return list_.empty(); }
  int count(RejectionCode code) const {
    return counts_[static_cast<size_t>(code)];
  }

 private:
  std::array<int, kNumRejectionCodes> counts_ = {};
  RejectionList list_;
};

}  // namespace signet::model
