#include "support/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "support/slot_state.h"

namespace signet::testing {
namespace {

template <typename T>
std::string FirstDifference(const std::string& name, const std::vector<T>& got,
                            const std::vector<T>& want) {
  if (got.size() != want.size()) {
    return fmt::format("{}: {} values, not {}", name, got.size(), want.size());
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(&got[i], &want[i], sizeof(T)) == 0) continue;
    return fmt::format("{}[{}]: {}, not {}", name, i, got[i], want[i]);
  }
  return {};
}

}  // namespace

std::string FirstDifference(const Snapshot& got, const Snapshot& want) {
  if (got.failure != want.failure) {
    return fmt::format("failure: '{}', not '{}'", got.failure, want.failure);
  }
  std::string found = FirstDifference("logits", got.logits, want.logits);
  if (found.empty()) found = FirstDifference("drawn", got.drawn, want.drawn);
  for (const auto& [name, tensor] : want.state) {
    if (!found.empty()) return found;
    found = FirstDifference(name, got.state.at(name).data, tensor.data);
  }
  return found;
}

void SequenceUnderTest::Prefill(const std::vector<int32_t>& ids) {
  const std::vector<float> logits = model_.Prefill(slot_, ids);
  logits_.insert(logits_.end(), logits.begin(), logits.end());
  drawn_.push_back(model_.Sampled(0));
}

void SequenceUnderTest::DecodeAmong(const std::vector<int32_t>& ids) {
  std::vector<SequenceSlot> slots;
  for (size_t i = 0; i < ids.size(); ++i) {
    slots.emplace_back(static_cast<int32_t>(i));
  }
  DecodeAmong(slots, ids);
}

void SequenceUnderTest::DecodeAmong(const std::vector<SequenceSlot>& slots,
                                    const std::vector<int32_t>& ids) {
  const auto row = static_cast<size_t>(
      std::find(slots.begin(), slots.end(), slot_) - slots.begin());
  const std::vector<float> logits = model_.Decode(slots, ids);
  const size_t vocab = logits.size() / ids.size();
  const float* first = logits.data() + row * vocab;
  logits_.insert(logits_.end(), first, first + vocab);
  drawn_.push_back(model_.Sampled(row));
}

void SequenceUnderTest::Decode(int32_t id) { DecodeAmong({slot_}, {id}); }

Snapshot SequenceUnderTest::Take() const {
  return {logits_, drawn_, model_.failure(), SlotState(model_, slot_)};
}

}  // namespace signet::testing
