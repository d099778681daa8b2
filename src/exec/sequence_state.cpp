#include "exec/sequence_state.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace signet::exec {
namespace {

// The executor refuses it, so that a sequence reads only what it holds.
constexpr int32_t kNoPage = -1;

}  // namespace

SequenceState::SequenceState(const plan::StateLayout& layout, int64_t slots,
                             int64_t page_tokens,
                             std::vector<std::span<int32_t>> page_tables)
    : pages_per_slot_(layout.pages_per_slot),
      page_tokens_(page_tokens),
      page_tables_(std::move(page_tables)),
      num_pages_(page_tables_.front().empty() ? 0 : layout.num_pages),
      lengths_(static_cast<size_t>(slots), 0) {
  Reset();
}

void SequenceState::SetPage(SequenceSlot slot, int64_t page, int32_t value) {
  const auto at = static_cast<size_t>(slot.value() * pages_per_slot_ + page);
  for (const std::span<int32_t> table : page_tables_) table[at] = value;
}

void SequenceState::Extend(SequenceSlot slot, int64_t count) {
  int64_t& length = lengths_[static_cast<size_t>(slot.value())];
  if (num_pages_ > 0) {
    const int64_t held = (length + page_tokens_ - 1) / page_tokens_;
    const int64_t needed = (length + count + page_tokens_ - 1) / page_tokens_;
    SIGNET_CHECK(needed <= pages_per_slot_);
    for (int64_t page = held; page < needed; ++page) {
      SIGNET_CHECK(!free_pages_.empty());
      SetPage(slot, page, free_pages_.back());
      free_pages_.pop_back();
    }
  }
  length += count;
}

void SequenceState::Release(SequenceSlot slot) {
  int64_t& length = lengths_[static_cast<size_t>(slot.value())];
  if (num_pages_ > 0) {
    const int64_t held = (length + page_tokens_ - 1) / page_tokens_;
    for (int64_t page = held - 1; page >= 0; --page) {
      free_pages_.push_back(page_tables_.front()[static_cast<size_t>(
          slot.value() * pages_per_slot_ + page)]);
      SetPage(slot, page, kNoPage);
    }
  }
  length = 0;
}

void SequenceState::Reset() {
  std::fill(lengths_.begin(), lengths_.end(), 0);
  for (const std::span<int32_t> table : page_tables_) {
    std::fill(table.begin(), table.end(), kNoPage);
  }
  free_pages_.clear();
  for (int64_t page = num_pages_ - 1; page >= 0; --page) {
    free_pages_.push_back(static_cast<int32_t>(page));
  }
}

}  // namespace signet::exec
