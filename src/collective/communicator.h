#pragma once
// One rank's end of one group of ranks: the operations its members meet in.
// Every member calls the same operations in the same order with the same sizes
// (proven before, F2). Once a group is poisoned every call returns at once and
// what it wrote means nothing; the caller asks poisoned() after each. The
// memory of a call stays valid until all members have left it. One thread an
// end. A call allocates nothing of ours and takes no lock.

#include <cstddef>
#include <cstdint>

#include "backend/launch_key.h"

namespace signet::collective {

struct ReduceArgs {
  const float* x = nullptr;  // [elements], this member's partial
  float* out = nullptr;      // [elements], not x
  int64_t elements = 0;      // equal on all members
};

struct GatherArgs {
  const std::byte* x = nullptr;  // [rows, own topology::BlockOf(columns)]
  std::byte* out = nullptr;      // [rows, columns], apart from x
  int64_t rows = 0;
  int64_t columns = 0;  // of out
  int64_t element_bytes = 0;
};

struct BroadcastArgs {
  const std::byte* x = nullptr;  // on the root; null on the others
  std::byte* out = nullptr;      // may be x or null on the root
  uint64_t bytes = 0;
  int root = 0;  // a member
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int members() const { return members_; }
  /// This end's place in group order.
  int member() const { return member_; }

  /// out = the canonical fold of every member's x (contract N2).
  virtual void AllReduce(backend::LaunchKey, const ReduceArgs& args) = 0;
  /// out = the members' blocks of columns side by side, whole on every member.
  virtual void Gather(backend::LaunchKey, const GatherArgs& args) = 0;
  /// out = the root's x, on every member that has an out.
  virtual void Broadcast(backend::LaunchKey, const BroadcastArgs& args) = 0;

  /// No member waits any more; everything after fails until a reset.
  virtual void Poison() = 0;
  virtual bool poisoned() const = 0;
  /// The member this end's group missed at the deadline; -1: none.
  virtual int missing_member() const = 0;

 protected:
  Communicator(int members, int member) : members_(members), member_(member) {}

 private:
  const int members_;
  const int member_;
};

}  // namespace signet::collective
