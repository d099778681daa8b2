#include "backend/gpu/decode_gate_up.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace signet::backend::gpu {
namespace {

// The flagship's, of `rows` rows.
RouteGateUpArgs RoutedOf(int64_t rows) {
  RouteGateUpArgs args;
  args.route.rows.capacity = rows;
  args.route.num_experts = 256;
  args.route.top_k = 8;
  args.route.renormalise = true;
  args.gate_up.top_k = 8;
  args.gate_up.table = {.num_experts = 256, .hidden = 2048, .width = 512};
  return args;
}

// Else every decode step would take the slower launches, with the same bits.
TEST(DecodeGateUpTest, TakesTheFlagship) {
  for (const int64_t rows : {1, 2, 8}) {
    EXPECT_TRUE(TakesGateUp(RoutedOf(rows))) << rows;
    EXPECT_EQ(TakesSharedGateUp(RoutedOf(rows), {.width = 512}), rows == 1);
  }
}

TEST(DecodeGateUpTest, TakesNoMoreThanItHolds) {
  EXPECT_FALSE(TakesGateUp(RoutedOf(9)));
  RouteGateUpArgs args = RoutedOf(1);
  args.route.top_k = 9;
  EXPECT_FALSE(TakesGateUp(args));
  args = RoutedOf(1);
  args.gate_up.table.num_experts = 257;
  EXPECT_FALSE(TakesGateUp(args));
  args = RoutedOf(1);
  args.gate_up.table.hidden = 2056;
  EXPECT_FALSE(TakesGateUp(args));
  args = RoutedOf(1);
  args.gate_up.table.up_dtype = tensor::DType::kF32;
  EXPECT_FALSE(TakesGateUp(args));
  args = RoutedOf(1);
  args.route.renormalise = false;
  EXPECT_FALSE(TakesGateUp(args));
}

}  // namespace
}  // namespace signet::backend::gpu
