#include "collective/in_process_group.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "collective/fold.h"
#include "topology/block.h"

namespace signet::collective {
namespace {

constexpr int kSpins = 2000;

// memcpy wants pointers even for nothing.
void Copy(const std::byte* from, int64_t bytes, std::byte* to) {
  if (bytes > 0 && from != to) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
}

}  // namespace

class InProcessGroup::End final : public Communicator {
 public:
  End(InProcessGroup* group, int member)
      : Communicator(group->members(), member), group_(group) {}

  void AllReduce(backend::LaunchKey key, const ReduceArgs& args) override {
    group_->ReduceBy(key, ChooseReduction(members(), args.elements), member(),
                     args, /*staging=*/nullptr);
  }
  void Gather(backend::LaunchKey key, const GatherArgs& args) override {
    group_->GatherBy(key, Transport::kOneShot, member(), args,
                     /*staging=*/nullptr);
  }
  void Broadcast(backend::LaunchKey key, const BroadcastArgs& args) override {
    group_->BroadcastBy(key, Transport::kOneShot, member(), args,
                        /*staging=*/nullptr);
  }
  void Poison() override { group_->Poison(); }
  bool poisoned() const override { return group_->poisoned(); }
  int missing_member() const override { return group_->missing_member(); }

 private:
  InProcessGroup* group_;
};

InProcessGroup::InProcessGroup(int members, std::chrono::milliseconds deadline)
    : deadline_(deadline), slots_(static_cast<size_t>(members)) {
  SIGNET_CHECK(members >= 1);
  sources_.resize(slots_.size(), std::vector<const float*>(slots_.size()));
  for (int m = 0; m < members; ++m) {
    ends_.push_back(std::make_unique<End>(this, m));
  }
}

InProcessGroup::~InProcessGroup() = default;

Communicator& InProcessGroup::end(int member) {
  return *ends_[static_cast<size_t>(member)];
}

bool InProcessGroup::Barrier(int member) {
  if (poisoned()) return false;
  Slot& own = slots_[static_cast<size_t>(member)];
  const uint64_t turn = own.arrived.load(std::memory_order_relaxed) + 1;
  own.arrived.store(turn, std::memory_order_release);
  const Clock::time_point start = Clock::now();
  for (int other = 0; other < members(); ++other) {
    const std::atomic<uint64_t>& arrived =
        slots_[static_cast<size_t>(other)].arrived;
    int spins = 0;
    while (arrived.load(std::memory_order_acquire) < turn) {
      if (poisoned()) return false;
      if (++spins < kSpins) continue;
      spins = 0;
      if (Clock::now() - start > deadline_) {
        int none = -1;
        missing_.compare_exchange_strong(none, other);
        Poison();
        return false;
      }
      // More ranks than cores must still make progress.
      std::this_thread::yield();
    }
  }
  return !poisoned();
}

bool InProcessGroup::Enter(int member, const void* x, void* out) {
  Slot& own = slots_[static_cast<size_t>(member)];
  own.x = x;
  own.out = out;
  return Barrier(member);
}

void InProcessGroup::ReduceBy(backend::LaunchKey, Transport transport,
                              int member, const ReduceArgs& args,
                              float* staging) {
  if (!Enter(member, args.x, args.out)) return;
  std::vector<const float*>& sources = sources_[static_cast<size_t>(member)];
  for (int m = 0; m < members(); ++m) {
    sources[static_cast<size_t>(m)] = X<float>(m);
  }
  switch (transport) {
    case Transport::kOneShot:
      Fold(sources, 0, args.elements, args.out);
      break;
    case Transport::kTwoShot: {
      const int64_t begin = args.elements * member / members();
      const int64_t end = args.elements * (member + 1) / members();
      Fold(sources, begin, end, args.out);
      for (int m = 0; m < members(); ++m) {
        if (m == member) continue;
        std::copy(args.out + begin, args.out + end, Out<float>(m) + begin);
      }
      break;
    }
    case Transport::kGather:
      for (int m = 0; m < members(); ++m) {
        float* copy = staging + m * args.elements;
        std::copy_n(X<float>(m), args.elements, copy);
        sources[static_cast<size_t>(m)] = copy;
      }
      Fold(sources, 0, args.elements, args.out);
      break;
  }
  // No member may write its x again before all have read it.
  Barrier(member);
}

void InProcessGroup::GatherBy(backend::LaunchKey, Transport transport,
                              int member, const GatherArgs& args,
                              std::byte* staging) {
  if (!Enter(member, args.x, args.out)) return;
  const auto block = [&](int m) {
    return topology::BlockOf(args.columns, members(), m);
  };
  switch (transport) {
    case Transport::kOneShot:
      for (int m = 0; m < members(); ++m) {
        SpreadBlock(X<std::byte>(m), args, block(m), args.out);
      }
      break;
    case Transport::kTwoShot:
      for (int m = 0; m < members(); ++m) {
        SpreadBlock(args.x, args, block(member), Out<std::byte>(m));
      }
      break;
    case Transport::kGather:
      for (int m = 0; m < members(); ++m) {
        const int64_t bytes = args.rows * block(m).size * args.element_bytes;
        Copy(X<std::byte>(m), bytes, staging);
        SpreadBlock(staging, args, block(m), args.out);
        staging += bytes;
      }
      break;
  }
  Barrier(member);
}

void InProcessGroup::BroadcastBy(backend::LaunchKey, Transport transport,
                                 int member, const BroadcastArgs& args,
                                 std::byte* staging) {
  if (!Enter(member, args.x, args.out)) return;
  const auto* source = X<std::byte>(args.root);
  const auto bytes = static_cast<int64_t>(args.bytes);
  switch (transport) {
    case Transport::kOneShot:
      if (args.out != nullptr) Copy(source, bytes, args.out);
      break;
    case Transport::kTwoShot: {
      const int64_t begin = bytes * member / members();
      const int64_t end = bytes * (member + 1) / members();
      for (int m = 0; m < members(); ++m) {
        auto* out = Out<std::byte>(m);
        if (out != nullptr) Copy(source + begin, end - begin, out + begin);
      }
      break;
    }
    case Transport::kGather:
      Copy(source, bytes, staging);
      if (args.out != nullptr && args.out != source) {
        Copy(staging, bytes, args.out);
      }
      break;
  }
  Barrier(member);
}

void InProcessGroup::Poison() {
  poisoned_.store(true, std::memory_order_release);
}

int InProcessGroup::missing_member() const {
  return missing_.load(std::memory_order_acquire);
}

int InProcessGroup::AwaitedBy(int member) const {
  const auto arrived = [&](int m) {
    return slots_[static_cast<size_t>(m)].arrived.load(
        std::memory_order_acquire);
  };
  for (int other = 0; other < members(); ++other) {
    if (arrived(other) < arrived(member)) return other;
  }
  return -1;
}

void InProcessGroup::Reset() {
  for (Slot& slot : slots_) slot.arrived.store(0, std::memory_order_relaxed);
  missing_.store(-1, std::memory_order_relaxed);
  poisoned_.store(false, std::memory_order_release);
}

}  // namespace signet::collective
