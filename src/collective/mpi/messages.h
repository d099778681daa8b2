#pragma once
// Messages in flight between processes: posted, then waited for together by
// polling, never longer than the deadline. One thread.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "collective/mpi/pulse.h"

namespace signet::collective {

class Messages {
 public:
  /// At most `capacity` messages of `max_bytes` each are in flight at once;
  /// room for them is made here. `pulse` outlives this.
  Messages(Pulse& pulse, std::chrono::milliseconds deadline, size_t capacity,
           uint64_t max_bytes);
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// Nothing is sent for 0 bytes; the receiver knows. The memory stays as it
  /// is until Finish.
  void Send(int rank, int tag, const void* from, uint64_t bytes);
  void Receive(int rank, int tag, void* to, uint64_t bytes);

  /// Waits until all that was posted is done. Otherwise the rank that was
  /// waited for: silent past the deadline, alive but elsewhere for many
  /// deadlines, or unreachable. Then nothing of these messages counts and
  /// MPI may still write into their memory: the run must end.
  std::optional<int> Finish();

 private:
  struct Requests;
  template <typename Post>
  void Split(int rank, uint64_t bytes, const Post& post);
  Pulse& pulse_;
  const std::chrono::milliseconds deadline_;
  std::unique_ptr<Requests> requests_;
  std::optional<int> broken_;  // the rank a message could not be posted for
};

}  // namespace signet::collective
