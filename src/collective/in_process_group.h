#pragma once
// The collectives of ranks that are threads of one process: a rendezvous over
// memory all of them can read. Reductions are the canonical fold (contract
// N2): the balanced binary tree over the members in group order, in fp32,
// whatever the transport. Every member calls the same collectives in the same
// order (proven before, F2); one thread a member.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/launch_key.h"

namespace signet::collective {

/// How partials travel; none changes a bit.
enum class Transport {
  kOneShot,  // every member folds everything from its peers' memory
  kTwoShot,  // every member folds its slice and writes it to all
  kGather,   // every member copies all partials, then folds its copies
};

/// Small reductions are bound by the rendezvous, large ones by the reading:
/// the one table of which transport a size uses.
Transport ChooseTransport(int members, int64_t elements);

struct AllReduceArgs {
  const float* x = nullptr;  // [elements], this member's partial
  float* out = nullptr;      // [elements], not x
  int64_t elements = 0;      // equal on all members
};

class InProcessGroup {
 public:
  using Clock = std::chrono::steady_clock;

  /// `members` is a power of two. A member that waits longer than `deadline`
  /// poisons the group.
  InProcessGroup(int members, std::chrono::milliseconds deadline);
  InProcessGroup(const InProcessGroup&) = delete;
  InProcessGroup& operator=(const InProcessGroup&) = delete;

  int members() const { return members_; }

  /// out = the fold of every member's x. Once the group is poisoned it returns
  /// at once and `out` means nothing.
  void AllReduce(backend::LaunchKey, int member, const AllReduceArgs& args);
  /// The same by a given transport, for tests that compare them. `staging`
  /// [members * elements] is used by kGather alone.
  void AllReduceBy(backend::LaunchKey, Transport transport, int member,
                   const AllReduceArgs& args, float* staging);

  /// Waits for all members; false when the group is, or becomes, poisoned.
  bool Barrier(int member);
  /// No member waits any more; everything after fails until Reset.
  void Poison();
  bool poisoned() const { return poisoned_.load(std::memory_order_acquire); }
  /// Which member was missing at the deadline; -1: none was.
  int missing_member() const;
  /// Only while no member is inside a call.
  void Reset();

 private:
  struct alignas(64) Slot {
    std::atomic<uint64_t> arrived{0};  // barriers entered
    const float* x = nullptr;
    float* out = nullptr;
  };
  void Fold(int64_t begin, int64_t end, float* out) const;

  const int members_;
  const std::chrono::milliseconds deadline_;
  std::vector<Slot> slots_;
  std::atomic<bool> poisoned_{false};
  std::atomic<int> missing_{-1};
};

}  // namespace signet::collective
