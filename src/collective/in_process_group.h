#pragma once
// A group of ranks that are threads of one process: a rendezvous over memory
// all of them can read. One thread a member; see Communicator for the rules of
// its ends.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/launch_key.h"
#include "collective/communicator.h"
#include "collective/transport.h"

namespace signet::collective {

class InProcessGroup {
 public:
  using Clock = std::chrono::steady_clock;

  /// `members` >= 1. A member that waits longer than `deadline` poisons the
  /// group.
  InProcessGroup(int members, std::chrono::milliseconds deadline);
  ~InProcessGroup();
  InProcessGroup(const InProcessGroup&) = delete;
  InProcessGroup& operator=(const InProcessGroup&) = delete;

  int members() const { return static_cast<int>(slots_.size()); }
  /// Lives as long as the group.
  Communicator& end(int member);

  /// The operations by a given transport, for tests that compare them.
  /// `staging` is used by kGather alone and holds what all members bring:
  /// [members, elements] floats, [rows, columns] elements, `bytes` bytes.
  void ReduceBy(backend::LaunchKey, Transport transport, int member,
                const ReduceArgs& args, float* staging);
  void GatherBy(backend::LaunchKey, Transport transport, int member,
                const GatherArgs& args, std::byte* staging);
  void BroadcastBy(backend::LaunchKey, Transport transport, int member,
                   const BroadcastArgs& args, std::byte* staging);

  /// Waits for all members; false when the group is, or becomes, poisoned.
  bool Barrier(int member);
  void Poison();
  bool poisoned() const { return poisoned_.load(std::memory_order_acquire); }
  /// Which member was missing at the deadline; -1: none was.
  int missing_member() const;
  /// A member that has not reached the meeting `member` is, or was when the
  /// group was poisoned, inside of; -1: `member` waits for none.
  int AwaitedBy(int member) const;
  /// Only while no member is inside a call.
  void Reset();

 private:
  class End;
  struct alignas(64) Slot {
    std::atomic<uint64_t> arrived{0};  // barriers entered
    // What the member brought to the meeting.
    const void* x = nullptr;
    void* out = nullptr;
  };
  bool Enter(int member, const void* x, void* out);
  template <typename T>
  const T* X(int member) const {
    return static_cast<const T*>(slots_[static_cast<size_t>(member)].x);
  }
  template <typename T>
  T* Out(int member) const {
    return static_cast<T*>(slots_[static_cast<size_t>(member)].out);
  }

  const std::chrono::milliseconds deadline_;
  std::vector<Slot> slots_;
  // The partials of the meeting, for each member its own list to fold.
  std::vector<std::vector<const float*>> sources_;
  std::vector<std::unique_ptr<End>> ends_;
  std::atomic<bool> poisoned_{false};
  std::atomic<int> missing_{-1};
};

}  // namespace signet::collective
