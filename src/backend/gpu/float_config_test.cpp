#include "backend/gpu/float_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace signet::backend::gpu {
namespace {

constexpr int kSms = 132;
constexpr int64_t kSharedPerSm = int64_t{227} << 10;

FloatDesc Desc(int64_t capacity, int64_t cols,
               std::initializer_list<int64_t> rows) {
  FloatDesc desc;
  desc.capacity = capacity;
  desc.cols = cols;
  std::copy(rows.begin(), rows.end(), desc.rows.begin());
  desc.num_products = static_cast<int>(rows.size());
  desc.vectors = true;
  desc.num_sms = kSms;
  return desc;
}

TEST(FloatConfigTest, TheOrderOfADotFollowsFromShapesAlone) {
  for (int64_t cols : {8, 512, 1024}) {
    for (int64_t capacity : {1, 2, 8}) EXPECT_EQ(DotWarps(cols, capacity), 1);
  }
  for (int64_t cols : {1032, 2048, 17408}) {
    EXPECT_EQ(DotWarps(cols, 1), 1);
    // As many rows as there may be: the same order for all of them.
    for (int64_t capacity : {2, 8, 4097}) {
      EXPECT_EQ(DotWarps(cols, capacity), 8);
    }
  }
  EXPECT_EQ(DotWarps(65536, 1), 8);
  for (int64_t cols : {8, 1024, 1032, 17408}) {
    for (int64_t capacity : {1, 3, 8, 4097}) {
      for (bool vectors : {false, true}) {
        FloatDesc desc = Desc(capacity, cols, {100});
        desc.vectors = vectors;
        EXPECT_EQ(ChooseFloat(desc).dot_warps, DotWarps(cols, capacity));
      }
    }
  }
}

TEST(FloatConfigTest, FewRowsAreTwoToEightOfOneLength) {
  for (int64_t capacity : {2, 3, 7, 8}) {
    EXPECT_TRUE(IsFewRows(capacity, kFewColumns)) << capacity;
    for (int64_t cols : {8, 1024, 2040, 2056, 4096, 20480}) {
      EXPECT_FALSE(IsFewRows(capacity, cols)) << capacity << " of " << cols;
    }
  }
  for (int64_t capacity : {0, 1, 9, 16, 4097}) {
    EXPECT_FALSE(IsFewRows(capacity, kFewColumns)) << capacity;
  }
  // The length of the flagship's rows.
  EXPECT_EQ(kFewColumns, 2048);
}

TEST(FloatConfigTest, TheLastRowIsMultipliedAsAmongAll) {
  for (int64_t capacity : {1, 8, 9, 70}) {
    FloatDesc desc = Desc(capacity, 2048, {300});
    const FloatConfig all = ChooseFloat(desc);
    desc.last_row = true;
    const FloatConfig last = ChooseFloat(desc);
    EXPECT_EQ(last.path, all.path);
    EXPECT_EQ(last.dot_warps, all.dot_warps);
    EXPECT_EQ(last.batch, all.batch);
    EXPECT_EQ(last.batches, 1);
  }
}

TEST(FloatConfigTest, TheFlagshipFillsTheMachineOnce) {
  // The projections of a DeltaNet layer: a warp a pair of rows.
  FloatDesc desc = Desc(1, 2048, {8192, 4096, 32, 32});
  desc.norm = true;
  FloatConfig config = ChooseFloat(desc);
  EXPECT_EQ(config.path, FloatPath::kShared);
  EXPECT_EQ(config.rows, 2);
  EXPECT_EQ(config.groups, 6176);
  EXPECT_EQ(config.blocks, 2 * kSms);
  EXPECT_EQ(config.teams, 1);
  // Batched, where the tensor cores do not take it: rounds of eight rows a
  // team.
  desc.capacity = 2;
  config = ChooseFloat(desc);
  EXPECT_EQ(config.rows, 8);
  EXPECT_EQ(config.blocks, 3 * kSms);
  // The output projection: every row in flight at once.
  config = ChooseFloat(Desc(1, 4096, {2048}));
  EXPECT_EQ(config.rows, 2);
  EXPECT_EQ(config.chunks, 8);
  EXPECT_EQ(config.blocks, 128);
  // Long rows of the dense model.
  config = ChooseFloat(Desc(1, 17408, {5120}));
  EXPECT_EQ(config.path, FloatPath::kShared);
  EXPECT_EQ(config.rows, 2);
  EXPECT_EQ(config.blocks, 2 * kSms);
}

TEST(FloatConfigTest, EveryChoiceHasAKernelAndFits) {
  for (int64_t capacity : {1, 2, 3, 4, 5, 8, 9, 100, 4097}) {
    for (int64_t cols : {1, 22, 40, 512, 1024, 1032, 2048, 2056, 4096, 5120,
                         6144, 17408, 65536}) {
      for (int64_t rows : {1, 7, 44, 512, 2048, 12352, 248320}) {
        for (bool vectors : {false, true}) {
          for (bool norm : {false, true}) {
            FloatDesc desc = Desc(capacity, cols, {rows, 3});
            desc.vectors = vectors && cols % 8 == 0;
            desc.norm = norm;
            const FloatConfig config = ChooseFloat(desc);
            EXPECT_GE(config.batch * config.batches, capacity);
            EXPECT_EQ(config.groups, GroupsOf(desc, 0, config.rows) +
                                         GroupsOf(desc, 1, config.rows));
            EXPECT_GE(config.blocks, 1);
            EXPECT_LE(config.blocks, 4 * kSms);
            EXPECT_LE(config.shared_bytes + 1024,
                      static_cast<size_t>(kSharedPerSm));
            EXPECT_LE(config.rows * config.batch, 32);
            EXPECT_TRUE(config.teams == 1 ||
                        (config.teams == 2 && config.batch > 1));
            if (config.path != FloatPath::kPortable) {
              EXPECT_TRUE(desc.vectors);
              const bool whole = config.dot_warps == 1 && config.batch == 1;
              EXPECT_EQ(config.rows * config.chunks,
                        config.batch == 8 ? 4 : (whole ? 16 : 8));
            } else {
              EXPECT_EQ(config.rows, 2);
              EXPECT_EQ(config.chunks, 1);
              EXPECT_TRUE(config.batch == 1 || config.batch == 8);
            }
            if (config.path == FloatPath::kStreamed) {
              EXPECT_EQ(config.dot_warps, 8);
            }
            if (config.batch == 4 && config.path != FloatPath::kPortable) {
              EXPECT_GE(config.rows, 4);
            }
            // Blocks that may be there together do fit together.
            const int64_t per_sm = (config.blocks + kSms - 1) / kSms;
            EXPECT_LE(per_sm * static_cast<int64_t>(config.shared_bytes + 1024),
                      kSharedPerSm);
          }
        }
      }
    }
  }
}

TEST(FloatConfigTest, NormsFuseWhereTheInputFits) {
  FloatDesc desc = Desc(8, 5120, {17408});
  desc.norm = true;
  EXPECT_TRUE(FusesFloat(desc));
  EXPECT_EQ(ChooseFloat(desc).teams, 2);
  desc.capacity = 9;
  EXPECT_FALSE(FusesFloat(desc));
  desc = Desc(8, 17408, {5120});
  EXPECT_FALSE(FusesFloat(desc));
  desc = Desc(1, 2048, {5120});
  desc.vectors = false;
  EXPECT_FALSE(FusesFloat(desc));
}

TEST(ExpertConfigTest, TheFlagshipFillsTheMachine) {
  ExpertDesc desc = {.capacity = 1,
                     .top_k = 8,
                     .num_experts = 256,
                     .rows = 512,
                     .cols = 2048,
                     .paired = true,
                     .bf16 = true,
                     .aligned = true,
                     .num_sms = kSms};
  ExpertConfig config = ChooseExpert(desc);
  EXPECT_TRUE(config.vectors && config.input_in_shared &&
              config.table_in_shared);
  EXPECT_EQ(config.dot_warps, 1);
  EXPECT_EQ(config.blocks, 2 * kSms);
  EXPECT_EQ(config.slot_blocks, 1);
  desc.capacity = 8;
  config = ChooseExpert(desc);
  EXPECT_TRUE(config.vectors);
  EXPECT_EQ(config.blocks, 2 * kSms);
  // No shared memory for so many inputs: correct all the same.
  desc.capacity = 100;
  config = ChooseExpert(desc);
  EXPECT_FALSE(config.vectors);
  EXPECT_EQ(config.slot_blocks, 4);
  desc = {.capacity = 1,
          .top_k = 8,
          .num_experts = 256,
          .rows = 2048,
          .cols = 512,
          .bf16 = true,
          .aligned = true,
          .num_sms = kSms};
  config = ChooseExpert(desc);
  EXPECT_EQ(config.dot_warps, 1);
  EXPECT_TRUE(config.vectors);
  EXPECT_FALSE(config.input_in_shared);
}

TEST(ExpertConfigTest, RoutesFuseUpToEightRows) {
  EXPECT_TRUE(FusesRouteGateUp({.capacity = 8, .top_k = 32}));
  EXPECT_FALSE(FusesRouteGateUp({.capacity = 9, .top_k = 8}));
  EXPECT_FALSE(FusesRouteGateUp({.capacity = 8, .top_k = 33}));
}

TEST(MoeTailConfigTest, FusesWhatFits) {
  MoeTailDesc desc = {.capacity = 1,
                      .top_k = 8,
                      .num_experts = 256,
                      .hidden = 2048,
                      .width = 512,
                      .shared_width = 512,
                      .bf16 = true,
                      .vectors = true,
                      .num_sms = kSms};
  MoeTailConfig config = ChooseMoeTail(desc);
  EXPECT_EQ(config.chunks, 2);
  EXPECT_EQ(config.blocks, 128);
  desc.capacity = 8;
  config = ChooseMoeTail(desc);
  EXPECT_EQ(config.chunks, 2);
  EXPECT_LE(config.shared_bytes + 1024, static_cast<size_t>(kSharedPerSm));
  desc.width = 768;
  desc.capacity = 1;
  EXPECT_EQ(ChooseMoeTail(desc).chunks, 4);
  desc.width = 1032;
  EXPECT_EQ(ChooseMoeTail(desc).chunks, 0);
  desc.width = 516;
  EXPECT_EQ(ChooseMoeTail(desc).chunks, 0);
  desc.width = 512;
  desc.capacity = 9;
  EXPECT_EQ(ChooseMoeTail(desc).chunks, 0);
  desc.capacity = 1;
  desc.bf16 = false;
  EXPECT_EQ(ChooseMoeTail(desc).chunks, 0);
}

}  // namespace
}  // namespace signet::backend::gpu
