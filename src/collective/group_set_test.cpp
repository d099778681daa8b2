#include "collective/group_set.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "backend/kernel_bench.h"
#include "collective/mesh_testing.h"

namespace signet::collective {
namespace {

using backend::testing::KernelBench;
using std::chrono::milliseconds;
using topology::Axis;

float Sum(Communicator& end, float x) {
  float out = 0;
  end.AllReduce(KernelBench::Launch(), {.x = &x, .out = &out, .elements = 1});
  return out;
}

TEST(GroupSet, EachRankMeetsTheRanksOfItsAxes) {
  GroupSet groups(MakeMesh("pp=3,tp=2"), milliseconds(60000));
  std::vector<std::thread> threads;
  for (int r = 0; r < 6; ++r) {
    threads.emplace_back([&groups, r] {
      const RankCommunicators& own = groups.of(Rank(r));
      const int stage = r / 2;
      EXPECT_EQ(own.Along(Axis::kEp), nullptr);
      ASSERT_NE(own.Along(Axis::kTp), nullptr);
      ASSERT_NE(own.Along(Axis::kPp), nullptr);
      EXPECT_EQ(own.Along(Axis::kTp)->member(), r % 2);
      EXPECT_EQ(own.Along(Axis::kPp)->member(), stage);
      EXPECT_EQ(own.previous_stage == nullptr, stage == 0);
      EXPECT_EQ(own.next_stage == nullptr, stage == 2);
      // Powers of two say who was in the sum.
      const auto x = static_cast<float>(1 << r);
      EXPECT_EQ(Sum(*own.Along(Axis::kTp), x),
                static_cast<float>(3 << (2 * stage)));
      EXPECT_EQ(Sum(*own.Along(Axis::kPp), x),
                static_cast<float>(r % 2 == 0 ? 0b010101 : 0b101010));
      int32_t residual = r < 2 ? 100 + r : -1;
      if (own.previous_stage != nullptr) {
        EXPECT_EQ(own.previous_stage->member(), 1);
        own.previous_stage->Broadcast(
            KernelBench::Launch(),
            {.out = reinterpret_cast<std::byte*>(&residual), .bytes = 4});
      }
      if (own.next_stage != nullptr) {
        EXPECT_EQ(own.next_stage->member(), 0);
        own.next_stage->Broadcast(
            KernelBench::Launch(),
            {.x = reinterpret_cast<const std::byte*>(&residual), .bytes = 4});
      }
      EXPECT_EQ(residual, 100 + r % 2);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(groups.poisoned());
}

TEST(GroupSet, AMeshOfOneHasNoGroup) {
  GroupSet groups(MakeMesh("ep=1"), milliseconds(1));
  EXPECT_EQ(groups.of(Rank(0)).Along(Axis::kEp), nullptr);
  EXPECT_FALSE(groups.poisoned());
  EXPECT_EQ(groups.missing_rank(), std::nullopt);
}

TEST(GroupSet, X5_TheMissingRankIsTheOneThatWaitedForNone) {
  // Ranks 0 1 | 2 3. Rank 3 stays away; 1 waits for it along pp, 0 for 1 along
  // ep, and 0 gives up first.
  GroupSet groups(MakeMesh("pp=2,ep=2"), milliseconds(300));
  std::thread second([&] { Sum(*groups.of(Rank(1)).Along(Axis::kPp), 1); });
  Sum(*groups.of(Rank(0)).Along(Axis::kEp), 1);
  groups.PoisonAll();
  second.join();
  EXPECT_TRUE(groups.poisoned());
  EXPECT_EQ(groups.missing_rank(), Rank(3));
  groups.Reset();
  EXPECT_FALSE(groups.poisoned());
  EXPECT_EQ(groups.missing_rank(), std::nullopt);
}

TEST(GroupSet, X5_PoisonReachesEveryGroup) {
  GroupSet groups(MakeMesh("pp=2,ep=2"), milliseconds(60000));
  std::vector<std::thread> waiting;
  waiting.emplace_back([&] { Sum(*groups.of(Rank(0)).Along(Axis::kEp), 1); });
  waiting.emplace_back([&] { Sum(*groups.of(Rank(3)).Along(Axis::kPp), 1); });
  waiting.emplace_back([&] {
    int32_t in = 0;
    groups.of(Rank(2)).previous_stage->Broadcast(
        KernelBench::Launch(),
        {.out = reinterpret_cast<std::byte*>(&in), .bytes = 4});
  });
  groups.PoisonAll();
  for (std::thread& thread : waiting) thread.join();
  EXPECT_EQ(groups.missing_rank(), std::nullopt);
}

}  // namespace
}  // namespace signet::collective
