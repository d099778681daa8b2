#include "collective/mpi/pulse.h"

#include "collective/mpi/mpi_api.h"

namespace signet::collective {

struct Pulse::Requests {
  explicit Requests(size_t size)
      : send(size, MPI_REQUEST_NULL),
        receive(size, MPI_REQUEST_NULL),
        in(size, 0) {}
  std::vector<MPI_Request> send;
  std::vector<MPI_Request> receive;
  std::vector<char> in;
  const char out = 1;
};

Pulse::Pulse(int rank, int size, std::chrono::milliseconds interval)
    : rank_(rank),
      interval_(interval),
      next_(Clock::now() + interval),
      heard_(static_cast<size_t>(size), Clock::now()),
      sent_(static_cast<size_t>(size), 0),
      received_(static_cast<size_t>(size), 0),
      requests_(std::make_unique<Requests>(static_cast<size_t>(size))) {
  for (int other = 0; other < size; ++other) {
    const auto i = static_cast<size_t>(other);
    if (other == rank_) continue;
    MPI_Irecv(&requests_->in[i], 1, MPI_CHAR, other, kTagPulse, MPI_COMM_WORLD,
              &requests_->receive[i]);
  }
}

Pulse::~Pulse() = default;

void Pulse::Beat(Clock::time_point now) {
  if (now < next_) return;
  next_ = now + interval_;
  Drain(now);
  if (frozen_) return;
  for (size_t i = 0; i < heard_.size(); ++i) {
    // One beat in flight is enough: a rank that takes none in is stopped.
    if (static_cast<int>(i) == rank_ ||
        requests_->send[i] != MPI_REQUEST_NULL) {
      continue;
    }
    ++sent_[i];
    MPI_Isend(&requests_->out, 1, MPI_CHAR, static_cast<int>(i), kTagPulse,
              MPI_COMM_WORLD, &requests_->send[i]);
  }
}

bool Pulse::Drain(Clock::time_point now) {
  bool all_sent = true;
  for (size_t i = 0; i < heard_.size(); ++i) {
    if (static_cast<int>(i) == rank_) continue;
    int done = 1;
    MPI_Test(&requests_->send[i], &done, MPI_STATUS_IGNORE);
    all_sent = all_sent && done != 0;
    while (true) {
      MPI_Test(&requests_->receive[i], &done, MPI_STATUS_IGNORE);
      if (done == 0) break;
      ++received_[i];
      heard_[i] = now;
      MPI_Irecv(&requests_->in[i], 1, MPI_CHAR, static_cast<int>(i), kTagPulse,
                MPI_COMM_WORLD, &requests_->receive[i]);
    }
  }
  return all_sent;
}

void Pulse::Withdraw() {
  for (MPI_Request& receive : requests_->receive) {
    if (receive == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&receive);
    // Local: a cancelled receive ends whatever the others do.
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
  }
}

void Pulse::Heard(int rank, Clock::time_point now) {
  heard_[static_cast<size_t>(rank)] = now;
}

Pulse::Clock::time_point Pulse::last_heard(int rank) const {
  return heard_[static_cast<size_t>(rank)];
}

}  // namespace signet::collective
