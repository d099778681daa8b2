#include "parity/snapshot.h"

#include <fmt/format.h>

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
  std::string found = FirstDifference("logits", got.logits, want.logits);
  for (const auto& [name, tensor] : want.state) {
    if (!found.empty()) return found;
    found = FirstDifference(name, got.state.at(name).data, tensor.data);
  }
  return found;
}

void SequenceUnderTest::Prefill(const std::vector<int32_t>& ids) {
  const std::vector<float> logits = model_.Prefill(slot_, ids);
  logits_.insert(logits_.end(), logits.begin(), logits.end());
}

void SequenceUnderTest::DecodeAmong(const std::vector<int32_t>& ids) {
  std::vector<SequenceSlot> slots;
  for (size_t i = 0; i < ids.size(); ++i) {
    slots.emplace_back(static_cast<int32_t>(i));
  }
  const std::vector<float> logits = model_.Decode(slots, ids);
  const size_t vocab = logits.size() / ids.size();
  const float* row = logits.data() + static_cast<size_t>(slot_.value()) * vocab;
  logits_.insert(logits_.end(), row, row + vocab);
}

void SequenceUnderTest::Decode(int32_t id) {
  const std::vector<float> row = model_.Decode({slot_}, {id});
  logits_.insert(logits_.end(), row.begin(), row.end());
}

Snapshot SequenceUnderTest::Take() const {
  return {logits_, SlotState(model_, slot_)};
}

}  // namespace signet::testing
