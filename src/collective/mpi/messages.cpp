#include "collective/mpi/messages.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "base/check.h"
#include "collective/mpi/mpi_api.h"

namespace signet::collective {
namespace {

using Clock = Pulse::Clock;

// MPI counts in int.
constexpr uint64_t kPieceBytes = uint64_t{1} << 30;
// A rank that beats but never comes is lost too, only later.
constexpr int kPatience = 20;

// First for a wait that is nearly over, then for fewer cores than ranks.
void Pause(int polls) {
  if (polls < 200) return;
  if (polls < 5000) {
    std::this_thread::yield();
    return;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(100));
}

}  // namespace

struct Messages::Requests {
  std::vector<MPI_Request> requests;
  std::vector<int> peers;
  std::vector<int> done;  // indices, written by MPI
};

Messages::Messages(Pulse& pulse, std::chrono::milliseconds deadline,
                   size_t capacity, uint64_t max_bytes)
    : pulse_(pulse),
      deadline_(deadline),
      requests_(std::make_unique<Requests>()) {
  const size_t pieces = capacity * (max_bytes / kPieceBytes + 1);
  requests_->requests.reserve(pieces);
  requests_->peers.reserve(pieces);
  requests_->done.resize(pieces);
}

Messages::~Messages() = default;

template <typename Post>
void Messages::Split(int rank, uint64_t bytes, const Post& post) {
  for (uint64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    SIGNET_CHECK(requests_->requests.size() < requests_->done.size());
    requests_->requests.push_back(MPI_REQUEST_NULL);
    requests_->peers.push_back(rank);
    const auto count = static_cast<int>(std::min(kPieceBytes, bytes - begin));
    if (post(begin, count, &requests_->requests.back()) != MPI_SUCCESS) {
      broken_ = rank;
    }
  }
}

void Messages::Send(int rank, int tag, const void* from, uint64_t bytes) {
  Split(rank, bytes, [&](uint64_t begin, int count, MPI_Request* request) {
    return MPI_Isend(static_cast<const std::byte*>(from) + begin, count,
                     MPI_BYTE, rank, tag, MPI_COMM_WORLD, request);
  });
}

void Messages::Receive(int rank, int tag, void* to, uint64_t bytes) {
  Split(rank, bytes, [&](uint64_t begin, int count, MPI_Request* request) {
    return MPI_Irecv(static_cast<std::byte*>(to) + begin, count, MPI_BYTE, rank,
                     tag, MPI_COMM_WORLD, request);
  });
}

std::optional<int> Messages::Finish() {
  std::vector<MPI_Request>& requests = requests_->requests;
  const std::vector<int>& peers = requests_->peers;
  const Clock::time_point start = Clock::now();
  for (int polls = 0; !broken_; ++polls) {
    int count = 0;
    const int code =
        MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &count,
                     requests_->done.data(), MPI_STATUSES_IGNORE);
    if (code == MPI_SUCCESS && count == MPI_UNDEFINED) {
      requests.clear();
      requests_->peers.clear();
      return std::nullopt;
    }
    const Clock::time_point now = Clock::now();
    for (int i = 0; i < count; ++i) {
      const auto index =
          static_cast<size_t>(requests_->done[static_cast<size_t>(i)]);
      pulse_.Heard(peers[index], now);
    }
    pulse_.Beat(now);
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i] == MPI_REQUEST_NULL) continue;
      const Clock::time_point heard =
          std::max(start, pulse_.last_heard(peers[i]));
      if (code != MPI_SUCCESS || now - heard > deadline_ ||
          now - start > kPatience * deadline_) {
        broken_ = peers[i];
        break;
      }
    }
    Pause(polls);
  }
  return broken_;
}

}  // namespace signet::collective
