#pragma once
// Distinct integer types for the things that are counted, so that an expert is
// never used as a slot. Values; no thread rule.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace signet {

/// An index of kind Tag. No default value, no arithmetic, no implicit
/// conversion; `value()` is the way out.
template <typename Tag, typename Rep = int32_t>
class Id {
 public:
  using rep = Rep;
  explicit constexpr Id(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  Rep value_;
};

using Rank = Id<struct RankTag>;
using LayerId = Id<struct LayerTag>;
using ExpertId = Id<struct ExpertTag>;          // global, 0 ... E-1
using LocalExpert = Id<struct LocalExpertTag>;  // on a rank, 0 ... E_r-1
using WeightId = Id<struct WeightTag>;          // entry of a Manifest
using BufferId = Id<struct BufferTag>;          // buffer of a program
using StepIndex = Id<struct StepTag>;
using SequenceSlot = Id<struct SequenceSlotTag>;  // slot of a Session
using ScheduleRow = Id<struct ScheduleRowTag>;    // row of the collective list
using FileId = Id<struct FileTag>;                // file of a checkpoint

/// A vector indexed by one kind of id only.
template <typename Key, typename T>
class IdVector {
 public:
  IdVector() = default;
  explicit IdVector(size_t size, const T& value = T()) : items_(size, value) {}
  IdVector(std::initializer_list<T> items) : items_(items) {}

  Key Push(T item) {
    items_.push_back(std::move(item));
    return Key(static_cast<typename Key::rep>(items_.size() - 1));
  }
  bool Contains(Key key) const {
    return key.value() >= 0 && static_cast<size_t>(key.value()) < items_.size();
  }
  T& operator[](Key key) { return items_[static_cast<size_t>(key.value())]; }
  const T& operator[](Key key) const {
    return items_[static_cast<size_t>(key.value())];
  }
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }

 private:
  std::vector<T> items_;
};

}  // namespace signet
