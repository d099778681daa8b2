#include "collective/mpi/mpi_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "collective/mpi/messages.h"
#include "collective/mpi/mpi_api.h"
#include "collective/mpi/mpi_communicator.h"
#include "collective/mpi/pulse.h"
#include "collective/staging.h"

namespace signet::collective {
namespace {

using std::chrono::milliseconds;
using topology::Axis;

constexpr uint64_t kMaxExchangeBytes = uint64_t{64} << 20;

// Processes start one after another on a machine with more of them than cores;
// the deadline is for ranks that fall silent later.
constexpr milliseconds kLeastStart(30000);

// Ends the process when MPI itself does not come back: its start and its end
// are the only calls that wait on their own.
class Watchdog {
 public:
  Watchdog(std::string what, milliseconds deadline)
      : thread_([this, what = std::move(what), deadline] {
          std::unique_lock lock(mutex_);
          if (ended_.wait_for(lock, deadline, [this] { return over_; })) return;
          fmt::print(stderr, "MPI did not {} within {} ms\n", what,
                     deadline.count());
          std::_Exit(1);
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

milliseconds PulseInterval(milliseconds deadline) {
  return std::max(milliseconds(1), deadline / 12);
}

// The ends of one rank in groups of processes.
class MpiGroups final : public RankGroups {
 public:
  /// `staging`: RankStaging bytes.
  MpiGroups(Pulse& pulse, milliseconds deadline, const topology::Mesh& mesh,
            Rank rank, const AxisSizes& sizes, backend::Memory staging)
      : pulse_(pulse), staging_(std::move(staging)) {
    std::span<std::byte> free = {staging_.data(),
                                 static_cast<size_t>(staging_.size().value())};
    for (const Axis axis : topology::kAllAxes) {
      if (mesh.size(axis) == 1) continue;
      const auto index = static_cast<size_t>(axis);
      const auto place = static_cast<size_t>(mesh.Coordinate(axis, rank));
      const std::vector<Rank> group = mesh.Group(axis, rank);
      const auto bytes = static_cast<size_t>(
          GroupStaging(static_cast<int>(group.size()), sizes[index]).value());
      ends_.axes[index] =
          Add(deadline, group, place, kTagFirstAxis + static_cast<int>(index),
              sizes[index], free.first(bytes));
      free = free.subspan(bytes);
      if (axis != Axis::kPp) continue;
      if (place > 0) {
        ends_.previous_stage =
            Add(deadline, {group[place - 1], rank}, 1, kTagStage);
      }
      if (place + 1 < group.size()) {
        ends_.next_stage =
            Add(deadline, {rank, group[place + 1]}, 0, kTagStage);
      }
    }
  }

  const RankCommunicators& of(Rank) const override { return ends_; }
  void PoisonAll() override {
    for (const auto& group : groups_) group->Poison();
  }
  std::optional<Rank> missing_rank() const override {
    for (const auto& group : groups_) {
      if (group->missing_member() >= 0) {
        return Rank(group->rank_of(group->missing_member()));
      }
    }
    return std::nullopt;
  }
  void Beat() override { pulse_.Beat(Pulse::Clock::now()); }
  void Reset() override {}

 private:
  MpiCommunicator* Add(milliseconds deadline, const std::vector<Rank>& ranks,
                       size_t member, int tag, const MeetingSizes& sizes = {},
                       std::span<std::byte> staging = {}) {
    std::vector<int> numbers;
    for (const Rank rank : ranks) numbers.push_back(rank.value());
    groups_.push_back(std::make_unique<MpiCommunicator>(
        pulse_, deadline, std::move(numbers), static_cast<int>(member), tag,
        sizes, staging));
    return groups_.back().get();
  }

  Pulse& pulse_;
  const backend::Memory staging_;
  std::vector<std::unique_ptr<MpiCommunicator>> groups_;
  RankCommunicators ends_;
};

class MpiWorld final : public World {
 public:
  MpiWorld(int rank, int size, milliseconds deadline)
      : rank_(rank),
        size_(size),
        deadline_(deadline),
        pulse_(rank, size, PulseInterval(deadline)),
        messages_(pulse_, deadline, 2 * static_cast<size_t>(size),
                  kMaxExchangeBytes) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  milliseconds deadline() const override { return deadline_; }

  Result<std::vector<std::string>> Exchange(std::string_view own) override {
    // Lengths, then bytes.
    std::vector<uint64_t> lengths(static_cast<size_t>(size_), own.size());
    const uint64_t length = own.size();
    ForOthers([&](int other) {
      messages_.Receive(other, kTagExchange,
                        &lengths[static_cast<size_t>(other)], sizeof(length));
      messages_.Send(other, kTagExchange, &length, sizeof(length));
    });
    if (const auto lost = messages_.Finish()) return Lost(*lost);
    std::vector<std::string> all(static_cast<size_t>(size_));
    for (int r = 0; r < size_; ++r) {
      const uint64_t bytes = lengths[static_cast<size_t>(r)];
      if (bytes > kMaxExchangeBytes) return Lost(r);
      all[static_cast<size_t>(r)].resize(bytes);
    }
    all[static_cast<size_t>(rank_)] = own;
    ForOthers([&](int other) {
      std::string& in = all[static_cast<size_t>(other)];
      messages_.Receive(other, kTagExchange, in.data(), in.size());
      messages_.Send(other, kTagExchange, own.data(), own.size());
    });
    if (const auto lost = messages_.Finish()) return Lost(*lost);
    return all;
  }

  void Beat() override { pulse_.Beat(Pulse::Clock::now()); }

  Result<std::unique_ptr<RankGroups>> MakeGroups(
      const topology::Mesh& mesh, const AxisSizes& sizes,
      backend::Device& device) override {
    const Bytes bytes = RankStaging(mesh, sizes);
    backend::Memory staging;
    if (bytes > Bytes()) {
      SIGNET_ASSIGN_OR_RETURN(staging,
                              device.Allocate(MemoryClass::kCommunicator, bytes,
                                              kStagingAlignment));
    }
    return std::make_unique<MpiGroups>(pulse_, deadline_, mesh, Rank(rank_),
                                       sizes, std::move(staging));
  }

  Result<void> Leave() override {
    // Every beat that was sent is taken in first: MPI must end with nothing
    // under way.
    pulse_.Freeze();
    const std::vector<uint64_t>& sent = pulse_.sent();
    SIGNET_ASSIGN_OR_RETURN(
        const std::vector<std::string> all,
        Exchange({reinterpret_cast<const char*>(sent.data()),
                  sent.size() * sizeof(uint64_t)}));
    const auto start = Pulse::Clock::now();
    for (int other = 0; other < size_; ++other) {
      const std::string& counts = all[static_cast<size_t>(other)];
      uint64_t expected = 0;
      if (counts.size() != sent.size() * sizeof(uint64_t)) return Lost(other);
      std::memcpy(&expected,
                  counts.data() + static_cast<size_t>(rank_) * sizeof(uint64_t),
                  sizeof(expected));
      while (!pulse_.Drain(Pulse::Clock::now()) ||
             pulse_.received()[static_cast<size_t>(other)] < expected) {
        if (Pulse::Clock::now() - start > deadline_) return Lost(other);
        std::this_thread::yield();
      }
    }
    pulse_.Withdraw();
    const Watchdog watchdog("end", deadline_);
    MPI_Finalize();
    return {};
  }

  [[noreturn]] void Abort(int exit_code) override {
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

 private:
  template <typename F>
  void ForOthers(const F& f) {
    for (int other = 0; other < size_; ++other) {
      if (other != rank_) f(other);
    }
  }
  tl::unexpected<Error> Lost(int other) const {
    return Fail(FailureKind::kDevice, "mesh",
                fmt::format("rank {} did not answer within {} s", other,
                            static_cast<double>(deadline_.count()) / 1000));
  }

  const int rank_;
  const int size_;
  const milliseconds deadline_;
  Pulse pulse_;
  Messages messages_;
};

}  // namespace

Result<std::unique_ptr<World>> StartMpi(milliseconds deadline) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized != 0) {
    return Fail(FailureKind::kState, "--launcher", "MPI runs already");
  }
  {
    const Watchdog watchdog("start", std::max(deadline, kLeastStart));
    int provided = 0;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) !=
        MPI_SUCCESS) {
      return Fail(FailureKind::kDevice, "--launcher", "MPI cannot start");
    }
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return std::unique_ptr<World>(
      std::make_unique<MpiWorld>(rank, size, deadline));
}

}  // namespace signet::collective
