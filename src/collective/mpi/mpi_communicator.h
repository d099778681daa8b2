#pragma once
// The end of a group whose other members are processes. Partials travel point
// to point and every member folds them itself in the order of the tree: no sum
// is left to MPI (contract N2). One thread.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "collective/communicator.h"
#include "collective/mpi/messages.h"
#include "collective/world.h"

namespace signet::collective {

class MpiCommunicator final : public Communicator {
 public:
  /// `ranks` in group order, all of the world. Meetings are at most of
  /// `sizes`, with GroupStaging bytes for them; broadcasts of any size. `pulse`
  /// and `staging` outlive this.
  MpiCommunicator(Pulse& pulse, std::chrono::milliseconds deadline,
                  std::vector<int> ranks, int member, int tag,
                  const MeetingSizes& sizes, std::span<std::byte> staging);

  void AllReduce(backend::LaunchKey, const ReduceArgs& args) override;
  void Gather(backend::LaunchKey, const GatherArgs& args) override;
  void Broadcast(backend::LaunchKey, const BroadcastArgs& args) override;

  /// Of this process alone: the others find out at their deadline, or are
  /// ended with the run.
  void Poison() override { poisoned_ = true; }
  bool poisoned() const override { return poisoned_; }
  int missing_member() const override { return missing_; }
  int rank_of(int member) const { return ranks_[static_cast<size_t>(member)]; }

 private:
  bool Finish();
  void ReduceWhole(const ReduceArgs& args);
  void ReduceSlices(const ReduceArgs& args);
  float* Floats() { return reinterpret_cast<float*>(staging_.data()); }

  const std::vector<int> ranks_;
  const int tag_;
  const std::span<std::byte> staging_;
  std::vector<const float*> sources_;
  Messages messages_;
  // Set by whoever poisons, which may be another thread of this process.
  std::atomic<bool> poisoned_{false};
  std::atomic<int> missing_{-1};
};

}  // namespace signet::collective
