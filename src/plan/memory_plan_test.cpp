#include "plan/memory_plan.h"

#include <gtest/gtest.h>

#include <string>

namespace signet::plan {
namespace {

// Two ranks that map one file; the second holds more while it loads.
MemoryPlan TwoRanks() {
  MemoryPlan memory;
  for (const uint64_t dense : {10u, 40u}) {
    RankMemory& rank = memory.ranks.emplace_back();
    rank.load = {{MemoryClass::kMapped, Bytes(100)},
                 {MemoryClass::kDense, Bytes(dense)}};
    rank.steady = {{MemoryClass::kMapped, Bytes(100)},
                   {MemoryClass::kDense, Bytes(10)},
                   {MemoryClass::kKv, Bytes(20)}};
  }
  return memory;
}

bool Fits(const std::vector<MemoryRoom>& rooms) {
  const Result<void> admitted = AdmitMemory(TwoRanks(), rooms);
  if (admitted) return true;
  EXPECT_TRUE(
      std::get<Rejections>(admitted.error()).Has(RejectionCode::kMemoryShort));
  return false;
}

TEST(MemoryPlan, P4_RanksOfOneRoomAreSummedAndTheirFileCountsOnce) {
  // 100 + (10 + 20) + 40, each rank at its own peak.
  EXPECT_TRUE(Fits({{"host", {Rank(0), Rank(1)}, Bytes(170)}}));
  EXPECT_FALSE(Fits({{"host", {Rank(0), Rank(1)}, Bytes(169)}}));
}

TEST(MemoryPlan, P4_EachRoomIsOfItsOwnRanks) {
  EXPECT_TRUE(
      Fits({{"a", {Rank(0)}, Bytes(130)}, {"b", {Rank(1)}, Bytes(140)}}));
  EXPECT_FALSE(
      Fits({{"a", {Rank(0)}, Bytes(129)}, {"b", {Rank(1)}, Bytes(140)}}));
  EXPECT_FALSE(
      Fits({{"a", {Rank(0)}, Bytes(130)}, {"b", {Rank(1)}, Bytes(139)}}));
}

TEST(MemoryPlan, P4_TheShortfallIsSaid) {
  const Result<void> admitted =
      AdmitMemory(TwoRanks(), {{"host", {Rank(0), Rank(1)}, Bytes(163)}});
  ASSERT_FALSE(admitted.has_value());
  EXPECT_NE(Describe(admitted.error()).find("7 B short"), std::string::npos)
      << Describe(admitted.error());
}

}  // namespace
}  // namespace signet::plan
