#pragma once
// The sequences of a session: which pages each slot holds and how long it is.
// A slot's pages come from one pool and go back to it. One thread.

#include <cstdint>
#include <span>
#include <vector>

#include "base/id.h"
#include "plan/state_layout.h"

namespace signet::exec {

class SequenceState {
 public:
  /// `page_tables`, one a rank and kept equal, [slots, pages_per_slot] each,
  /// lie in the arenas, which must outlive this; empty for a rank none of whose
  /// layers has a KV cache.
  SequenceState(const plan::KvPool& pool, int64_t slots,
                std::vector<std::span<int32_t>> page_tables);

  /// Tokens in the slot's sequence: the position of its next one.
  int64_t length(SequenceSlot slot) const {
    return lengths_[static_cast<size_t>(slot.value())];
  }
  /// Makes room for `count` tokens more and counts them in. The caller keeps
  /// lengths within the context, so pages never run out.
  void Extend(SequenceSlot slot, int64_t count);
  /// Ends the sequence; its pages are free again.
  void Release(SequenceSlot slot);
  /// All slots empty and the pool in its first order.
  void Reset();

 private:
  void SetPage(SequenceSlot slot, int64_t page, int32_t value);
  plan::KvPool pool_;
  std::vector<std::span<int32_t>> page_tables_;  // of ranks that have one
  std::vector<int64_t> lengths_;                 // [slots]
  std::vector<int32_t> free_pages_;              // a stack
};

}  // namespace signet::exec
