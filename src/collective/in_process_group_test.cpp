#include "collective/in_process_group.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "backend/kernel_bench.h"

namespace signet::collective {
namespace {

using backend::testing::KernelBench;
using std::chrono::milliseconds;

constexpr milliseconds kPatient(60000);

// partials[member][element] reduced by every member; all must agree.
std::vector<float> Reduce(const std::vector<std::vector<float>>& partials,
                          Transport transport, int rounds = 1) {
  const int members = static_cast<int>(partials.size());
  const size_t elements = partials[0].size();
  InProcessGroup group(members, kPatient);
  std::vector<std::vector<float>> outs(partials.size(),
                                       std::vector<float>(elements, NAN));
  std::vector<std::thread> threads;
  for (int m = 0; m < members; ++m) {
    threads.emplace_back([&, m] {
      const auto index = static_cast<size_t>(m);
      std::vector<float> staging(elements * partials.size());
      for (int round = 0; round < rounds; ++round) {
        std::vector<float> x = partials[index];
        group.AllReduceBy(KernelBench::Launch(), transport, m,
                          {.x = x.data(),
                           .out = outs[index].data(),
                           .elements = static_cast<int64_t>(elements)},
                          staging.data());
        // Dirty at once: no peer may still be reading.
        std::fill(x.begin(), x.end(), NAN);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(group.poisoned());
  for (const std::vector<float>& out : outs) {
    EXPECT_EQ(std::memcmp(out.data(), outs[0].data(), elements * 4), 0);
  }
  return outs[0];
}

TEST(InProcessGroup, N2_EveryTransportGivesTheTreesBits) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const float telling[] = {1e8f, 1.0f, -1e8f, 1.0f, 3e-5f, 1e8f, -1.0f, 7.0f};
  for (const size_t members : {1u, 2u, 4u, 8u}) {
    std::vector<std::vector<float>> partials(members, std::vector<float>(1001));
    for (size_t m = 0; m < members; ++m) {
      for (size_t i = 0; i < 1001; ++i) {
        partials[m][i] =
            i % 2 == 0 ? telling[(m + i / 2) % 8] : normal(random) * 1e4f;
      }
    }
    std::vector<float> wanted(1001);
    for (size_t i = 0; i < 1001; ++i) {
      std::vector<float> level;
      for (size_t m = 0; m < members; ++m) level.push_back(partials[m][i]);
      while (level.size() > 1) {
        std::vector<float> next;
        for (size_t p = 0; p < level.size(); p += 2) {
          next.push_back(level[p] + level[p + 1]);
        }
        level = next;
      }
      wanted[i] = level[0];
    }
    for (const Transport transport :
         {Transport::kOneShot, Transport::kTwoShot, Transport::kGather}) {
      const std::vector<float> got = Reduce(partials, transport);
      EXPECT_EQ(std::memcmp(got.data(), wanted.data(), 1001 * 4), 0)
          << members << " members, transport " << static_cast<int>(transport);
    }
  }
}

TEST(InProcessGroup, ManyRoundsNeverMix) {
  const std::vector<std::vector<float>> partials(4,
                                                 std::vector<float>(40, 2.0f));
  EXPECT_EQ(Reduce(partials, Transport::kOneShot, 300),
            std::vector<float>(40, 8.0f));
  EXPECT_EQ(Reduce(partials, Transport::kTwoShot, 300),
            std::vector<float>(40, 8.0f));
}

TEST(InProcessGroup, X5_AMissingMemberPoisonsTheGroupAtTheDeadline) {
  InProcessGroup group(2, milliseconds(20));
  EXPECT_FALSE(group.Barrier(0));
  EXPECT_TRUE(group.poisoned());
  EXPECT_EQ(group.missing_member(), 1);
  EXPECT_FALSE(group.Barrier(1));
  group.Reset();
  std::thread other([&] { EXPECT_TRUE(group.Barrier(1)); });
  EXPECT_TRUE(group.Barrier(0));
  other.join();
}

TEST(InProcessGroup, PoisonWakesThoseWhoWait) {
  InProcessGroup group(2, kPatient);
  std::thread waiter([&] { EXPECT_FALSE(group.Barrier(0)); });
  group.Poison();
  waiter.join();
}

}  // namespace
}  // namespace signet::collective
