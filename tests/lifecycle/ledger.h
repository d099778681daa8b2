#pragma once
// Watches every device of one engine: what each gave back when it went, and the
// fault points its ranks pass. A fault is armed for one rank's n-th point, so
// that the walk is the same on every run whatever the threads do.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "backend/device.h"
#include "engine/device_factory.h"

namespace signet::testing {

class Ledger {
 public:
  static constexpr int kMaxRanks = 8;

  /// For MakeEngine. The ledger must outlive the engine and all it made.
  DeviceFactory Factory();

  /// Devices made from now on pass their fault points here, or none.
  void Watch(bool watch) { watch_ = watch; }

  /// From here on points are counted from 0; `rank`'s point `index` fails, or
  /// none. Only while no rank runs.
  void Count();
  void FailAt(int rank, int64_t index);
  /// What FailAt was last given.
  std::pair<int, int64_t> armed() const { return {armed_rank_, armed_index_}; }
  /// Instead of failing, `rank`'s point `index` calls `act`, on its driver.
  void CallAt(int rank, int64_t index, std::function<void()> act);
  /// Points passed by a rank since then.
  int64_t passed(int rank) const { return passed_[Index(rank)].load(); }
  /// What the armed fault struck; unset when it has not.
  std::string struck() const;
  /// `copy 96, read 40, ...` of all ranks since Count.
  std::string Kinds() const;

  int live_devices() const;
  /// Whether every device that is gone had given everything back, and each to
  /// the device it came from.
  bool balanced() const;
  uint64_t allocations() const;  // of devices that are gone

 private:
  friend class WatchedDevice;
  friend class RankHook;
  static size_t Index(int rank) { return static_cast<size_t>(rank); }
  bool ShouldFail(int rank, backend::FaultPoint point);
  void Gone(const backend::AllocationCounts& counts);

  bool watch_ = true;
  int armed_rank_ = -1;
  int64_t armed_index_ = -1;
  std::function<void()> act_;
  std::array<std::atomic<int64_t>, kMaxRanks> passed_ = {};
  std::array<std::atomic<int64_t>, backend::kAllFaultPoints.size()> kinds_ = {};
  std::atomic<int> struck_{-1};

  mutable std::mutex mutex_;
  int live_devices_ = 0;
  bool balanced_ = true;
  uint64_t allocations_ = 0;
};

}  // namespace signet::testing
