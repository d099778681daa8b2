#include "backend/gpu/decode_moe_tail.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace signet::backend::gpu {
namespace {

MoeTailArgs TailOf(int64_t hidden) {
  MoeTailArgs args;
  args.add.rows.capacity = 1;
  args.down.table = {.num_experts = 4, .hidden = hidden, .width = 64};
  args.shared_down.x.dtype = tensor::DType::kF32;
  args.shared_down.weight = {
      .dtype = tensor::DType::kBF16, .rows = hidden, .cols = 64};
  args.combine.top_k = 2;
  args.combine.num_lanes = 4;
  args.combine.width = hidden;
  return args;
}

// A warp takes two rows at a time, and the last two where one is left over.
TEST(DecodeMoeTailTest, TakesNoSingleRow) {
  EXPECT_TRUE(TakesMoeTail(TailOf(2048)));
  EXPECT_TRUE(TakesMoeTail(TailOf(3)));
  EXPECT_TRUE(TakesMoeTail(TailOf(2)));
  EXPECT_FALSE(TakesMoeTail(TailOf(1)));
}

}  // namespace
}  // namespace signet::backend::gpu
