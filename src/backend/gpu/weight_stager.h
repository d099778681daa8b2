#pragma once
// Brings weights from files to a GPU: a few threads, each of which reads a
// piece into pinned memory of its own and has it copied while it reads the
// next. The bound is the disk, or the link to the GPU.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backend/device.h"
#include "base/result.h"

namespace signet::backend::gpu {

class WeightStager {
 public:
  /// Of the GPU `ordinal`. Threads start with the first piece.
  explicit WeightStager(int ordinal) : ordinal_(ordinal) {}
  ~WeightStager();
  WeightStager(const WeightStager&) = delete;
  WeightStager& operator=(const WeightStager&) = delete;

  /// Queues the rows for `to`, compact. Returns at once.
  void Add(const StridedRows& from, std::byte* to);
  /// Waits for all that was queued; the first failure, kIo or kDevice, after
  /// which pieces not yet begun are dropped. `progress` may be empty.
  Result<void> Wait(const CopyProgress& progress);

 private:
  struct Piece {
    StridedRows from;
    std::byte* to;
  };
  class Worker;
  void Work();
  void Stop();

  const int ordinal_;
  std::mutex mutex_;
  std::condition_variable queued_;    // a piece, or the end
  std::condition_variable finished_;  // a piece is in place
  std::deque<Piece> pieces_;          // the rest is guarded by mutex_ too
  int64_t open_ = 0;                  // queued or in work
  uint64_t done_bytes_ = 0;
  std::optional<Error> error_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace signet::backend::gpu
