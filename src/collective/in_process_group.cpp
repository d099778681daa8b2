#include "collective/in_process_group.h"

#include <algorithm>
#include <thread>

#include "base/check.h"

namespace signet::collective {
namespace {

// Above this a member's slice is worth a second rendezvous.
constexpr int64_t kTwoShotElements = 16384;
constexpr int kSpins = 2000;
constexpr int kMaxMembers = 64;

// The balanced tree over values[0 ... count), count a power of two.
float Tree(const float* values, int count) {
  if (count == 1) return values[0];
  return Tree(values, count / 2) + Tree(values + count / 2, count / 2);
}

}  // namespace

Transport ChooseTransport(int members, int64_t elements) {
  return members > 2 && elements >= kTwoShotElements ? Transport::kTwoShot
                                                     : Transport::kOneShot;
}

InProcessGroup::InProcessGroup(int members, std::chrono::milliseconds deadline)
    : members_(members),
      deadline_(deadline),
      slots_(static_cast<size_t>(members)) {
  SIGNET_CHECK(members >= 1 && members <= kMaxMembers &&
               (members & (members - 1)) == 0);
}

bool InProcessGroup::Barrier(int member) {
  Slot& own = slots_[static_cast<size_t>(member)];
  const uint64_t turn = own.arrived.load(std::memory_order_relaxed) + 1;
  own.arrived.store(turn, std::memory_order_release);
  const Clock::time_point start = Clock::now();
  for (int other = 0; other < members_; ++other) {
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

void InProcessGroup::Fold(int64_t begin, int64_t end, float* out) const {
  const float* sources[kMaxMembers];
  for (int m = 0; m < members_; ++m) {
    sources[m] = slots_[static_cast<size_t>(m)].x;
  }
  // The tree level by level over a block, so that the loops vectorise; the
  // order of the sums is that of Tree.
  constexpr int64_t kBlock = 256;
  float sums[kMaxMembers][kBlock];
  for (int64_t first = begin; first < end; first += kBlock) {
    const int64_t count = std::min(kBlock, end - first);
    for (int m = 0; m < members_; ++m) {
      std::copy_n(sources[m] + first, count, sums[m]);
    }
    for (int step = 1; step < members_; step *= 2) {
      for (int m = 0; m < members_; m += 2 * step) {
        for (int64_t i = 0; i < count; ++i) sums[m][i] += sums[m + step][i];
      }
    }
    std::copy_n(sums[0], count, out + first);
  }
}

void InProcessGroup::AllReduce(backend::LaunchKey key, int member,
                               const AllReduceArgs& args) {
  AllReduceBy(key, ChooseTransport(members_, args.elements), member, args,
              /*staging=*/nullptr);
}

void InProcessGroup::AllReduceBy(backend::LaunchKey, Transport transport,
                                 int member, const AllReduceArgs& args,
                                 float* staging) {
  Slot& own = slots_[static_cast<size_t>(member)];
  own.x = args.x;
  own.out = args.out;
  if (!Barrier(member)) return;
  switch (transport) {
    case Transport::kOneShot:
      Fold(0, args.elements, args.out);
      break;
    case Transport::kTwoShot: {
      const int64_t begin = args.elements * member / members_;
      const int64_t end = args.elements * (member + 1) / members_;
      Fold(begin, end, args.out);
      for (const Slot& slot : slots_) {
        if (slot.out == args.out) continue;
        std::copy(args.out + begin, args.out + end, slot.out + begin);
      }
      break;
    }
    case Transport::kGather:
      for (int m = 0; m < members_; ++m) {
        std::copy_n(slots_[static_cast<size_t>(m)].x, args.elements,
                    staging + m * args.elements);
      }
      for (int64_t i = 0; i < args.elements; ++i) {
        float values[kMaxMembers];
        for (int m = 0; m < members_; ++m) {
          values[m] = staging[m * args.elements + i];
        }
        args.out[i] = Tree(values, members_);
      }
      break;
  }
  // No member may write its x again before all have read it.
  Barrier(member);
}

void InProcessGroup::Poison() {
  poisoned_.store(true, std::memory_order_release);
}

int InProcessGroup::missing_member() const {
  return missing_.load(std::memory_order_acquire);
}

void InProcessGroup::Reset() {
  for (Slot& slot : slots_) slot.arrived.store(0, std::memory_order_relaxed);
  missing_.store(-1, std::memory_order_relaxed);
  poisoned_.store(false, std::memory_order_release);
}

}  // namespace signet::collective
