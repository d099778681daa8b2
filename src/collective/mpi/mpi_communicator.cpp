#include "collective/mpi/mpi_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "collective/fold.h"
#include "collective/in_process_group.h"
#include "topology/block.h"

namespace signet::collective {
namespace {

uint64_t LargestMessage(const MeetingSizes& sizes) {
  return std::max(static_cast<uint64_t>(sizes.reduce_elements) * sizeof(float),
                  sizes.gather_bytes);
}

}  // namespace

MpiCommunicator::MpiCommunicator(Pulse& pulse,
                                 std::chrono::milliseconds deadline,
                                 std::vector<int> ranks, int member, int tag,
                                 const MeetingSizes& sizes,
                                 std::span<std::byte> staging)
    : Communicator(static_cast<int>(ranks.size()), member),
      ranks_(std::move(ranks)),
      tag_(tag),
      staging_(staging),
      sources_(ranks_.size()),
      messages_(pulse, deadline, 2 * ranks_.size(), LargestMessage(sizes)) {}

bool MpiCommunicator::Finish() {
  const std::optional<int> lost = messages_.Finish();
  if (!lost) return !poisoned();
  const auto found = std::find(ranks_.begin(), ranks_.end(), *lost);
  missing_ = static_cast<int>(found - ranks_.begin());
  Poison();
  return false;
}

void MpiCommunicator::AllReduce(backend::LaunchKey, const ReduceArgs& args) {
  if (poisoned()) return;
  if (ChooseReduction(members(), args.elements) == Transport::kOneShot) {
    ReduceWhole(args);
  } else {
    ReduceSlices(args);
  }
}

// Everyone's partial to everyone.
void MpiCommunicator::ReduceWhole(const ReduceArgs& args) {
  const uint64_t bytes = static_cast<uint64_t>(args.elements) * sizeof(float);
  SIGNET_CHECK(static_cast<uint64_t>(members()) * bytes <= staging_.size());
  for (int m = 0; m < members(); ++m) {
    const float* source = args.x;
    if (m != member()) {
      float* in = Floats() + m * args.elements;
      messages_.Receive(rank_of(m), tag_, in, bytes);
      messages_.Send(rank_of(m), tag_, args.x, bytes);
      source = in;
    }
    sources_[static_cast<size_t>(m)] = source;
  }
  if (Finish()) Fold(sources_, 0, args.elements, args.out);
}

// Each member folds its slice of all partials, then sends the sum to all.
void MpiCommunicator::ReduceSlices(const ReduceArgs& args) {
  const auto begin = [&](int m) { return args.elements * m / members(); };
  const auto size = [&](int m) { return begin(m + 1) - begin(m); };
  const auto bytes = [&](int m) {
    return static_cast<uint64_t>(size(m)) * sizeof(float);
  };
  const int own = member();
  SIGNET_CHECK(static_cast<uint64_t>(members()) * bytes(own) <=
               staging_.size());
  for (int m = 0; m < members(); ++m) {
    const float* source = args.x + begin(own);
    if (m != own) {
      float* in = Floats() + m * size(own);
      messages_.Receive(rank_of(m), tag_, in, bytes(own));
      messages_.Send(rank_of(m), tag_, args.x + begin(m), bytes(m));
      source = in;
    }
    sources_[static_cast<size_t>(m)] = source;
  }
  if (!Finish()) return;
  Fold(sources_, 0, size(own), args.out + begin(own));
  for (int m = 0; m < members(); ++m) {
    if (m == own) continue;
    messages_.Receive(rank_of(m), tag_, args.out + begin(m), bytes(m));
    messages_.Send(rank_of(m), tag_, args.out + begin(own), bytes(own));
  }
  Finish();
}

void MpiCommunicator::Gather(backend::LaunchKey, const GatherArgs& args) {
  if (poisoned()) return;
  const auto block = [&](int m) {
    return topology::BlockOf(args.columns, members(), m);
  };
  const auto bytes = [&](int m) {
    return static_cast<uint64_t>(args.rows * block(m).size *
                                 args.element_bytes);
  };
  // Blocks come one after another, in group order, and are then spread.
  SIGNET_CHECK(static_cast<uint64_t>(args.rows * args.columns *
                                     args.element_bytes) <= staging_.size());
  std::byte* in = staging_.data();
  for (int m = 0; m < members(); ++m) {
    if (m != member()) {
      messages_.Receive(rank_of(m), tag_, in, bytes(m));
      messages_.Send(rank_of(m), tag_, args.x, bytes(member()));
    }
    in += bytes(m);
  }
  if (!Finish()) return;
  in = staging_.data();
  for (int m = 0; m < members(); ++m) {
    SpreadBlock(m == member() ? args.x : in, args, block(m), args.out);
    in += bytes(m);
  }
}

void MpiCommunicator::Broadcast(backend::LaunchKey, const BroadcastArgs& args) {
  if (poisoned()) return;
  if (member() != args.root) {
    messages_.Receive(rank_of(args.root), tag_, args.out, args.bytes);
    Finish();
    return;
  }
  for (int m = 0; m < members(); ++m) {
    if (m != member()) messages_.Send(rank_of(m), tag_, args.x, args.bytes);
  }
  if (!Finish() || args.out == nullptr || args.out == args.x) return;
  std::memcpy(args.out, args.x, args.bytes);
}

}  // namespace signet::collective
