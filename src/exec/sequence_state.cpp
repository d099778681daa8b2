#include "exec/sequence_state.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace signet::exec {
namespace {

// The executor refuses it, so that a sequence reads only what it holds.
constexpr int32_t kNoPage = -1;

}  // namespace

SequenceState::SequenceState(const plan::KvPool& pool, int64_t slots,
                             std::vector<std::span<int32_t>> page_tables)
    : pool_(pool),
      page_tables_(std::move(page_tables)),
      lengths_(static_cast<size_t>(slots), 0) {
  std::erase_if(page_tables_,
                [](std::span<int32_t> table) { return table.empty(); });
  Reset();
}

void SequenceState::SetPage(SequenceSlot slot, int64_t page, int32_t value) {
  const auto at =
      static_cast<size_t>(slot.value() * pool_.pages_per_slot + page);
  for (const std::span<int32_t> table : page_tables_) table[at] = value;
}

void SequenceState::Extend(SequenceSlot slot, int64_t count) {
  int64_t& length = lengths_[static_cast<size_t>(slot.value())];
  if (!page_tables_.empty()) {
    const int64_t held = (length + pool_.page_tokens - 1) / pool_.page_tokens;
    const int64_t needed =
        (length + count + pool_.page_tokens - 1) / pool_.page_tokens;
    SIGNET_CHECK(needed <= pool_.pages_per_slot);
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
  if (!page_tables_.empty()) {
    const int64_t held = (length + pool_.page_tokens - 1) / pool_.page_tokens;
    for (int64_t page = held - 1; page >= 0; --page) {
      free_pages_.push_back(page_tables_.front()[static_cast<size_t>(
          slot.value() * pool_.pages_per_slot + page)]);
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
  for (int64_t page = pool_.num_pages - 1; page >= 0; --page) {
    free_pages_.push_back(static_cast<int32_t>(page));
  }
}

}  // namespace signet::exec
