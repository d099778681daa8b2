#include "exec/sequence_state.h"

#include <algorithm>

#include "base/check.h"

namespace signet::exec {

SequenceState::SequenceState(const plan::StateLayout& layout, int64_t slots,
                             int64_t page_tokens, std::span<int32_t> page_table)
    : pages_per_slot_(layout.pages_per_slot),
      page_tokens_(page_tokens),
      page_table_(page_table),
      num_pages_(page_table.empty() ? 0 : layout.num_pages),
      lengths_(static_cast<size_t>(slots), 0) {
  Reset();
}

void SequenceState::Extend(SequenceSlot slot, int64_t count) {
  int64_t& length = lengths_[static_cast<size_t>(slot.value())];
  if (!page_table_.empty()) {
    const int64_t held = (length + page_tokens_ - 1) / page_tokens_;
    const int64_t needed = (length + count + page_tokens_ - 1) / page_tokens_;
    SIGNET_CHECK(needed <= pages_per_slot_);
    for (int64_t page = held; page < needed; ++page) {
      SIGNET_CHECK(!free_pages_.empty());
      page_table_[static_cast<size_t>(slot.value() * pages_per_slot_ + page)] =
          free_pages_.back();
      free_pages_.pop_back();
    }
  }
  length += count;
}

void SequenceState::Release(SequenceSlot slot) {
  int64_t& length = lengths_[static_cast<size_t>(slot.value())];
  if (!page_table_.empty()) {
    const int64_t held = (length + page_tokens_ - 1) / page_tokens_;
    for (int64_t page = held - 1; page >= 0; --page) {
      int32_t& entry = page_table_[static_cast<size_t>(
          slot.value() * pages_per_slot_ + page)];
      free_pages_.push_back(entry);
      entry = 0;
    }
  }
  length = 0;
}

void SequenceState::Reset() {
  std::fill(lengths_.begin(), lengths_.end(), 0);
  std::fill(page_table_.begin(), page_table_.end(), 0);
  free_pages_.clear();
  for (int64_t page = num_pages_ - 1; page >= 0; --page) {
    free_pages_.push_back(static_cast<int32_t>(page));
  }
}

}  // namespace signet::exec
