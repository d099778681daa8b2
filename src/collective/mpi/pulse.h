#pragma once
// Signs of life between the processes of a run. A rank that waits or works
// beats every so often; a rank is silent when neither a beat nor a message of
// it has come. So a deadline measures silence, not work, and the rank it names
// is the one that stopped and not one that waited for it. One thread.

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace signet::collective {

class Pulse {
 public:
  using Clock = std::chrono::steady_clock;

  /// MPI is initialised. Beats `interval` apart.
  Pulse(int rank, int size, std::chrono::milliseconds interval);
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  /// Beats if it is time, and takes in what has come.
  void Beat(Clock::time_point now);
  /// A message of `rank` came.
  void Heard(int rank, Clock::time_point now);
  Clock::time_point last_heard(int rank) const;

  /// For the orderly end: no more beats from here on. How many went to each
  /// rank and came from it.
  void Freeze() { frozen_ = true; }
  const std::vector<uint64_t>& sent() const { return sent_; }
  const std::vector<uint64_t>& received() const { return received_; }
  /// Takes in what has come, beats or no beats. Whether all sends are done.
  bool Drain(Clock::time_point now);
  /// Withdraws the receives that nothing can match any more.
  void Withdraw();

 private:
  struct Requests;
  const int rank_;
  const std::chrono::milliseconds interval_;
  Clock::time_point next_;
  bool frozen_ = false;
  std::vector<Clock::time_point> heard_;
  std::vector<uint64_t> sent_;
  std::vector<uint64_t> received_;
  std::unique_ptr<Requests> requests_;
};

}  // namespace signet::collective
