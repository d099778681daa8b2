// The canonical fold against the CPU's, bit for bit: indexed and grouped rows,
// whole and partial ranks.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "backend/kernel_bench.h"
#include "tests/conformance/expert_testing.h"
#include "tests/conformance/product_testing.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using backend::testing::KernelBench;

struct FoldCase {
  int64_t capacity;
  int64_t live;
  int64_t top_k;
  int64_t num_experts;
  int64_t lanes;
  int64_t first_lane;
  int64_t num_lanes;
  int64_t width;
};

const FoldCase kFolds[] = {
    {1, 1, 8, 256, 8, 0, 8, 2048},    {8, 7, 8, 256, 8, 0, 8, 2048},
    {3, 2, 3, 22, 2, 0, 2, 44},       {5, 5, 9, 16, 8, 4, 4, 33},
    {4, 4, 2, 8, 8, 3, 1, 20},        {6, 6, 20, 32, 8, 0, 8, 7},
    {1, 1, 1, 7, 1, 0, 1, 5},         {2, 0, 2, 8, 8, 0, 8, 16},
    {300, 257, 8, 64, 8, 2, 2, 36},   {4097, 4001, 4, 64, 8, 0, 8, 40},
    {70, 65, 8, 128, 8, 0, 8, 5120},  {256, 255, 8, 64, 8, 0, 8, 2052},
    {400, 333, 9, 64, 8, 0, 8, 1096}, {512, 512, 2, 16, 8, 4, 4, 1031}};

class CombineGpuTest : public ProductTest {
 protected:
  void ExpectSame(Numbers& numbers, const FoldCase& c, bool grouped) {
    SCOPED_TRACE(std::to_string(c.live) + " of " + std::to_string(c.capacity) +
                 " rows of " + std::to_string(c.width) + ", lanes from " +
                 std::to_string(c.first_lane) + ", " +
                 std::to_string(c.num_lanes) +
                 (grouped ? ", grouped" : ", indexed"));
    const int64_t per_lane = c.num_experts / c.lanes;
    const std::vector<int32_t> map =
        SomeHere(c.num_experts, c.first_lane * per_lane,
                 (c.first_lane + c.num_lanes) * per_lane);
    const std::vector<int32_t> ids =
        DrawnIds(numbers, c.live, c.top_k,
                 SpreadIds(c.num_experts, c.num_experts), true);
    const int64_t slots = c.capacity * c.top_k;
    const int64_t num_rows = grouped ? slots + 5 : slots;
    const std::vector<float> d = UniformValues(numbers, num_rows * c.width);
    std::vector<float> weights = UniformValues(numbers, slots);
    std::vector<int32_t> perm;
    for (int64_t s = 0; grouped && s < slots; ++s) {
      const bool here =
          s < c.live * c.top_k && ids[static_cast<size_t>(s)] >= 0 &&
          map[static_cast<size_t>(ids[static_cast<size_t>(s)])] >= 0;
      perm.push_back(
          here && s % 11 != 5 ? static_cast<int32_t>(num_rows - 1 - s) : -1);
    }
    DeviceRows rows(c.live, c.capacity);
    DeviceArray<int32_t> device_ids(slots);
    device_ids.Set(ids);
    DeviceArray<float> device_weights(weights);
    DeviceArray<float> device_d(d);
    DeviceArray<int32_t> device_perm(grouped ? perm : std::vector<int32_t>{-1});
    DeviceArray<int32_t> device_map(map);
    DeviceArray<float> out(c.capacity * c.width);
    CombineArgs args = {.rows = rows.view(),
                        .top_k = c.top_k,
                        .num_experts = c.num_experts,
                        .lanes = c.lanes,
                        .first_lane = c.first_lane,
                        .num_lanes = c.num_lanes,
                        .width = c.width,
                        .ids = device_ids.data(),
                        .weights = device_weights.data(),
                        .d = device_d.data(),
                        .inverse_perm = grouped ? device_perm.data() : nullptr,
                        .global_to_local = device_map.data(),
                        .out = out.data()};
    kernels().Combine(KernelBench::Launch(), args);
    Finish();
    EXPECT_TRUE(out.CanariesIntact());
    std::vector<float> got = out.Get();
    EXPECT_TRUE(AllUnwritten(
        std::span(got).subspan(static_cast<size_t>(c.live * c.width))));
    got.resize(static_cast<size_t>(c.live * c.width));

    const auto live = static_cast<int32_t>(c.live);
    std::vector<float> want(got.size());
    args.rows = {.live = &live, .capacity = c.capacity};
    args.ids = ids.data();
    args.weights = weights.data();
    args.d = d.data();
    args.inverse_perm = grouped ? perm.data() : nullptr;
    args.global_to_local = map.data();
    args.out = want.data();
    cpu().Combine(KernelBench::Launch(), args);
    EXPECT_TRUE(SameBits(got, want));
  }
};

TEST_F(CombineGpuTest, IsTheCpus) {
  Numbers numbers(501);
  for (const FoldCase& c : kFolds) {
    ExpectSame(numbers, c, false);
    ExpectSame(numbers, c, true);
  }
}

}  // namespace
}  // namespace signet::backend::gpu
