#include "collective/in_process_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "backend/kernel_bench.h"
#include "topology/block.h"

namespace signet::collective {
namespace {

using backend::testing::KernelBench;
using std::chrono::milliseconds;

constexpr milliseconds kPatient(60000);
constexpr Transport kTransports[] = {Transport::kOneShot, Transport::kTwoShot,
                                     Transport::kGather};
// The last: the operation of the member's end, which chooses by itself.
constexpr int kChosen = 3;

using Matrix = std::vector<std::vector<float>>;  // [member][element]

std::byte* Raw(float* data) { return reinterpret_cast<std::byte*>(data); }
const std::byte* Raw(const float* data) {
  return reinterpret_cast<const std::byte*>(data);
}

// Runs `body` as every member of a group, each on a thread of its own.
void AsMembers(InProcessGroup& group, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int m = 0; m < group.members(); ++m) {
    threads.emplace_back([&body, m] { body(m); });
  }
  for (std::thread& thread : threads) thread.join();
}

// Values whose sum depends on the order, and random ones.
Matrix Telling(int members, size_t elements) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const float telling[] = {1e8f, 1.0f, -1e8f, 1.0f, 3e-5f, 1e8f, -1.0f, 7.0f};
  Matrix values(static_cast<size_t>(members), std::vector<float>(elements));
  for (size_t m = 0; m < values.size(); ++m) {
    for (size_t i = 0; i < elements; ++i) {
      values[m][i] =
          i % 2 == 0 ? telling[(m + i / 2) % 8] : normal(random) * 1e4f;
    }
  }
  return values;
}

// partials[member][element] reduced by every member; all must agree.
std::vector<float> Reduce(const Matrix& partials, int transport,
                          int rounds = 1) {
  const int members = static_cast<int>(partials.size());
  const size_t elements = partials[0].size();
  InProcessGroup group(members, kPatient);
  Matrix outs(partials.size(), std::vector<float>(elements, NAN));
  AsMembers(group, [&](int m) {
    const auto index = static_cast<size_t>(m);
    std::vector<float> staging(elements * partials.size());
    for (int round = 0; round < rounds; ++round) {
      std::vector<float> x = partials[index];
      const ReduceArgs args = {.x = x.data(),
                               .out = outs[index].data(),
                               .elements = static_cast<int64_t>(elements)};
      if (transport == kChosen) {
        group.end(m).AllReduce(KernelBench::Launch(), args);
      } else {
        group.ReduceBy(KernelBench::Launch(), kTransports[transport], m, args,
                       staging.data());
      }
      // Dirty at once: no peer may still be reading.
      std::fill(x.begin(), x.end(), NAN);
    }
  });
  EXPECT_FALSE(group.poisoned());
  for (const std::vector<float>& out : outs) {
    EXPECT_EQ(std::memcmp(out.data(), outs[0].data(), elements * 4), 0);
  }
  return outs[0];
}

// The tree of N2, level by level; the last of an odd level goes up as it is.
float Tree(std::vector<float> level) {
  while (level.size() > 1) {
    std::vector<float> next;
    for (size_t p = 0; p < level.size(); p += 2) {
      next.push_back(p + 1 < level.size() ? level[p] + level[p + 1] : level[p]);
    }
    level = next;
  }
  return level[0];
}

TEST(InProcessGroup, N2_EveryTransportGivesTheTreesBits) {
  for (const int members : {1, 2, 3, 4, 5, 6, 8}) {
    // The second is long enough for two shots.
    for (const size_t elements : {1001u, 17000u}) {
      const Matrix partials = Telling(members, elements);
      std::vector<float> wanted;
      for (size_t i = 0; i < elements; ++i) {
        std::vector<float> leaves;
        for (const std::vector<float>& x : partials) leaves.push_back(x[i]);
        wanted.push_back(Tree(leaves));
      }
      for (int transport = 0; transport <= kChosen; ++transport) {
        const std::vector<float> got = Reduce(partials, transport);
        EXPECT_EQ(std::memcmp(got.data(), wanted.data(), elements * 4), 0)
            << members << " members, transport " << transport;
      }
    }
  }
}

TEST(InProcessGroup, EveryTransportGathersUnequalBlocks) {
  constexpr int64_t kRows = 5;
  for (const int members : {2, 3, 4, 5, 8}) {
    // Even, shorter last, and blocks that are empty: 9 over 8 is 2 each.
    for (const int64_t columns : {40, 37, 9}) {
      const std::vector<float> whole =
          Telling(1, static_cast<size_t>(kRows * columns))[0];
      for (int transport = 0; transport <= kChosen; ++transport) {
        InProcessGroup group(members, kPatient);
        Matrix outs(static_cast<size_t>(members),
                    std::vector<float>(whole.size(), NAN));
        AsMembers(group, [&](int m) {
          const topology::Block block = topology::BlockOf(columns, members, m);
          std::vector<float> x;
          for (int64_t row = 0; row < kRows; ++row) {
            const float* from = whole.data() + row * columns + block.first;
            x.insert(x.end(), from, from + block.size);
          }
          std::vector<float> staging(whole.size());
          const GatherArgs args = {
              .x = Raw(x.data()),
              .out = Raw(outs[static_cast<size_t>(m)].data()),
              .rows = kRows,
              .columns = columns,
              .element_bytes = 4};
          if (transport == kChosen) {
            group.end(m).Gather(KernelBench::Launch(), args);
          } else {
            group.GatherBy(KernelBench::Launch(), kTransports[transport], m,
                           args, Raw(staging.data()));
          }
          std::fill(x.begin(), x.end(), NAN);
        });
        for (const std::vector<float>& out : outs) {
          EXPECT_EQ(std::memcmp(out.data(), whole.data(), 4 * whole.size()), 0)
              << members << " members, " << columns << " columns, transport "
              << transport;
        }
      }
    }
  }
}

TEST(InProcessGroup, EveryTransportBroadcastsFromEveryRoot) {
  const std::vector<float> sent = Telling(1, 1003)[0];
  const uint64_t bytes = 4 * sent.size();
  for (const int members : {2, 3, 4, 8}) {
    for (int root = 0; root < members; ++root) {
      for (int transport = 0; transport <= kChosen; ++transport) {
        InProcessGroup group(members, kPatient);
        // The root's own out: apart, the same memory, or none.
        for (const int own : {0, 1, 2}) {
          Matrix outs(static_cast<size_t>(members),
                      std::vector<float>(sent.size(), NAN));
          AsMembers(group, [&](int m) {
            std::vector<float>& out = outs[static_cast<size_t>(m)];
            std::vector<float> x = sent;
            if (own == 1 && m == root) out = sent;
            const BroadcastArgs args = {
                .x = m != root  ? nullptr
                     : own == 1 ? Raw(out.data())
                                : Raw(x.data()),
                .out = own == 2 && m == root ? nullptr : Raw(out.data()),
                .bytes = bytes,
                .root = root};
            std::vector<float> staging(sent.size());
            if (transport == kChosen) {
              group.end(m).Broadcast(KernelBench::Launch(), args);
            } else {
              group.BroadcastBy(KernelBench::Launch(), kTransports[transport],
                                m, args, Raw(staging.data()));
            }
            std::fill(x.begin(), x.end(), NAN);
          });
          EXPECT_FALSE(group.poisoned());
          for (int m = 0; m < members; ++m) {
            if (own == 2 && m == root) continue;
            EXPECT_EQ(std::memcmp(outs[static_cast<size_t>(m)].data(),
                                  sent.data(), bytes),
                      0)
                << members << " members, root " << root << ", transport "
                << transport << ", out " << own;
          }
        }
      }
    }
  }
}

TEST(InProcessGroup, ManyRoundsNeverMix) {
  const Matrix partials(4, std::vector<float>(40, 2.0f));
  for (int transport = 0; transport <= kChosen; ++transport) {
    EXPECT_EQ(Reduce(partials, transport, 300), std::vector<float>(40, 8.0f));
  }
}

// What the two ends of a group of 3 do while member 1 stays away.
void ExpectMissing(const std::function<void(Communicator&)>& operation) {
  InProcessGroup group(3, milliseconds(20));
  AsMembers(group, [&](int m) {
    if (m == 1) return;
    operation(group.end(m));
    EXPECT_TRUE(group.end(m).poisoned());
    EXPECT_EQ(group.end(m).missing_member(), 1);
  });
  // Poison lasts: who comes late does not wait either.
  operation(group.end(1));
  EXPECT_TRUE(group.poisoned());
  EXPECT_EQ(group.AwaitedBy(0), 1);
  EXPECT_EQ(group.AwaitedBy(1), -1);
  group.Reset();
  EXPECT_FALSE(group.poisoned());
  EXPECT_EQ(group.missing_member(), -1);
}

TEST(InProcessGroup, X5_EveryOperationNamesTheMissingMemberAtTheDeadline) {
  ExpectMissing([](Communicator& end) {
    const float x[2] = {1, 2};
    float out[2] = {-1, -1};
    end.AllReduce(KernelBench::Launch(), {.x = x, .out = out, .elements = 2});
    // Nothing was written that could pass for a sum.
    EXPECT_EQ(out[0], -1);
    EXPECT_EQ(out[1], -1);
  });
  ExpectMissing([](Communicator& end) {
    const float x[1] = {1};
    float out[3] = {-1, -1, -1};
    end.Gather(KernelBench::Launch(), {.x = Raw(x),
                                       .out = Raw(out),
                                       .rows = 1,
                                       .columns = 3,
                                       .element_bytes = 4});
    EXPECT_EQ(out[0], -1);
    EXPECT_EQ(out[2], -1);
  });
  ExpectMissing([](Communicator& end) {
    const float x = 7;
    float out = -1;
    end.Broadcast(KernelBench::Launch(),
                  {.x = end.member() == 0 ? Raw(&x) : nullptr,
                   .out = Raw(&out),
                   .bytes = 4,
                   .root = 0});
    EXPECT_EQ(out, -1);
  });
}

TEST(InProcessGroup, X5_AResetGroupMeetsAgain) {
  InProcessGroup group(2, milliseconds(20));
  EXPECT_FALSE(group.Barrier(0));
  EXPECT_FALSE(group.Barrier(1));
  group.Reset();
  AsMembers(group, [&](int m) { EXPECT_TRUE(group.Barrier(m)); });
}

TEST(InProcessGroup, PoisonWakesThoseWhoWait) {
  InProcessGroup group(2, kPatient);
  std::thread waiter([&] { EXPECT_FALSE(group.Barrier(0)); });
  group.end(1).Poison();
  waiter.join();
  EXPECT_EQ(group.missing_member(), -1);
}

}  // namespace
}  // namespace signet::collective
