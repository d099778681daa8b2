// The routed block in two launches: each leaves the bits of its steps, and they
// agree with the CPU's.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "backend/kernel_bench.h"
#include "tests/conformance/fused_moe_testing.h"
#include "tests/conformance/product_testing.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using backend::testing::KernelBench;
using tensor::DType;

const MoeCase kMoeCases[] = {
    {1, 1, 8, {256, 2048, 512}, 512},
    {2, 2, 8, {256, 2048, 512}, 512},
    {3, 3, 8, {64, 2048, 128}, 256},
    {4, 2, 8, {64, 2048, 128}, 128},
    {8, 7, 8, {256, 2048, 512}, 512},
    // A rank of several.
    {1, 1, 8, {256, 2048, 64}, 64, 24, 8, 4, 4},
    {8, 8, 8, {64, 2048, 64}, 64, 24, 8, 6, 2},
    {5, 5, 3, {8, 40, 24}, 8, 8, 8, 3, 1},
    // Small and odd, wide experts, many of them.
    {3, 2, 2, {8, 32, 16}, 24, 8},
    {1, 1, 1, {7, 2104, 40}, 72, 7, 1, 0, 1},
    {2, 2, 5, {30, 4096, 37}, 40, 20, 2, 0, 2, false},
    {2, 1, 3, {12, 2048, 768}, 1024, 8, 4, 0, 4},
    // A row of out is left over, and not in the first round of the warps.
    {1, 1, 2, {8, 2113, 16}, 24, 8},
    {4, 4, 2, {8, 4225, 16}, 24, 8},
    {2, 2, 20, {640, 64, 40}, 48, 40},
    {1, 1, 4, {1200, 2048, 8}, 8, 40},
    // Not fused, one or the other.
    {9, 8, 4, {16, 2048, 24}, 24, 10},
    {8, 8, 33, {64, 48, 16}, 16, 40},
    {2, 2, 2, {8, 2048, 1032}, 16, 4},
    {1, 1, 2, {8, 2048, 1032}, 16, 4},
    {1, 1, 2, {8, 2048, 24}, 1032, 4},
    {3, 3, 2, {8, 44, 22}, 20, 8},
    {2, 2, 2, {8, 40, 24, DType::kF32, DType::kF16, DType::kF32}, 24, 8},
    {2, 0, 2, {8, 64, 32}, 32, 4},
};

class FusedMoeTest : public ProductTest {
 protected:
  /// Scores whose best are among the experts in use; token 2 of every 5 has one
  /// that is not finite.
  static std::vector<float> Scores(Numbers& numbers, const MoeCase& c) {
    std::vector<float> scores;
    const std::vector<int32_t> in_use =
        SpreadIds(c.shape.num_experts, c.in_use);
    for (int64_t t = 0; t < c.live; ++t) {
      std::vector<float> row =
          UniformValues(numbers, c.shape.num_experts, 3.0f);
      for (int32_t id : in_use) row[static_cast<size_t>(id)] += 10.0f;
      if (t % 5 == 2) {
        row[static_cast<size_t>(numbers.Below(c.shape.num_experts))] =
            std::numeric_limits<float>::infinity();
      }
      scores.insert(scores.end(), row.begin(), row.end());
    }
    return scores;
  }
};

TEST_F(FusedMoeTest, RouteGateAndUpLeaveTheBitsOfTheirSteps) {
  Numbers numbers(701);
  const LaunchKey key = KernelBench::Launch();
  for (const MoeCase& c : kMoeCases) {
    SCOPED_TRACE(NameOf(c));
    const int64_t slots = c.capacity * c.top_k;
    const int64_t width = c.shape.width;
    const std::vector<float> scores = Scores(numbers, c);
    const std::vector<float> x =
        UniformValues(numbers, c.live * c.shape.hidden);
    RankExperts experts(numbers, c.shape, Here(c),
                        SpreadIds(c.shape.num_experts, c.in_use));
    Inputs device_scores(DType::kF32, scores, c.capacity * c.shape.num_experts);
    Inputs device_x(DType::kF32, x, c.capacity * c.shape.hidden);
    DeviceRows rows(c.live, c.capacity);

    struct Outputs {
      explicit Outputs(int64_t slots, int64_t width)
          : ids(slots),
            weights(slots),
            flag(std::vector<int32_t>{8}),
            gate(slots * width),
            up(slots * width),
            act(slots * width) {}
      DeviceArray<int32_t> ids;
      DeviceArray<float> weights;
      DeviceArray<int32_t> flag;
      DeviceArray<float> gate;
      DeviceArray<float> up;
      DeviceArray<float> act;
    };
    const auto args_of = [&](Outputs& out) {
      return RouteGateUpArgs{
          .route = {.rows = rows.view(),
                    .num_experts = c.shape.num_experts,
                    .top_k = c.top_k,
                    .renormalise = c.renormalise,
                    .scores =
                        static_cast<const float*>(device_scores.view().data),
                    .ids = out.ids.data(),
                    .weights = out.weights.data(),
                    .flag = out.flag.data()},
          .gate_up = {.rows = rows.view(),
                      .top_k = c.top_k,
                      .table = experts.device(),
                      .ids = out.ids.data(),
                      .x = static_cast<const float*>(device_x.view().data),
                      .gate = out.gate.data(),
                      .up = out.up.data()},
          .activation = {.rows = rows.view(),
                         .multiple = c.top_k,
                         .width = width,
                         .gate = out.gate.data(),
                         .up = out.up.data(),
                         .out = out.act.data()}};
    };
    Outputs fused(slots, width);
    kernels().RouteGateUp(key, args_of(fused));
    Finish();
    Outputs again(slots, width);
    kernels().RouteGateUp(key, args_of(again));
    Finish();
    Outputs plain(slots, width);
    const RouteGateUpArgs steps = args_of(plain);
    kernels().Route(key, steps.route);
    kernels().IndexedGateUp(key, steps.gate_up);
    kernels().Activation(key, steps.activation);
    Finish();

    const std::vector<int32_t> ids = fused.ids.Get();
    EXPECT_EQ(ids, plain.ids.Get());
    EXPECT_TRUE(SameBits(fused.weights.Get(), plain.weights.Get()));
    EXPECT_EQ(fused.flag.Get(), plain.flag.Get());
    EXPECT_TRUE(fused.ids.CanariesIntact() && fused.weights.CanariesIntact() &&
                fused.flag.CanariesIntact() && fused.act.CanariesIntact());

    std::vector<int32_t> host_ids(static_cast<size_t>(c.live * c.top_k));
    std::vector<float> host_weights(host_ids.size());
    std::vector<float> gate(host_ids.size() * static_cast<size_t>(width));
    std::vector<float> up(gate.size());
    const auto live = static_cast<int32_t>(c.live);
    const Rows host = {.live = &live, .capacity = c.capacity};
    int32_t flag = 8;
    cpu().Route(key, {.rows = host,
                      .num_experts = c.shape.num_experts,
                      .top_k = c.top_k,
                      .renormalise = c.renormalise,
                      .scores = scores.data(),
                      .ids = host_ids.data(),
                      .weights = host_weights.data(),
                      .flag = &flag});
    cpu().IndexedGateUp(key, {.rows = host,
                              .top_k = c.top_k,
                              .table = experts.host(),
                              .ids = host_ids.data(),
                              .x = x.data(),
                              .gate = gate.data(),
                              .up = up.data()});
    cpu().Activation(key, {.rows = host,
                           .multiple = c.top_k,
                           .width = width,
                           .gate = gate.data(),
                           .up = up.data(),
                           .out = gate.data()});
    EXPECT_EQ(fused.flag.Get()[0], flag);
    EXPECT_TRUE(std::equal(host_ids.begin(), host_ids.end(), ids.begin()));

    const std::vector<float> act = fused.act.Get();
    const std::vector<float> act_again = again.act.Get();
    const std::vector<float> act_plain = plain.act.Get();
    std::vector<float> computed;
    std::vector<float> wanted;
    for (size_t s = 0; s < static_cast<size_t>(slots); ++s) {
      const auto w = static_cast<size_t>(width);
      const bool is_live = s < host_ids.size();
      for (size_t i = s * w; i < (s + 1) * w; ++i) {
        if (is_live && experts.Computes(host_ids[s])) {
          ASSERT_EQ(std::bit_cast<uint32_t>(act[i]),
                    std::bit_cast<uint32_t>(act_plain[i]))
              << "slot " << s;
          ASSERT_EQ(std::bit_cast<uint32_t>(act[i]),
                    std::bit_cast<uint32_t>(act_again[i]))
              << "slot " << s;
          computed.push_back(act[i]);
          wanted.push_back(gate[i]);
        } else if (!is_live) {
          ASSERT_TRUE(IsUnwritten(act[i])) << "slot " << s;
        }
      }
    }
    if (computed.empty()) continue;
    EXPECT_LE(RelativeError(computed, std::span<const float>(wanted)),
              2 * kFloatBound);
  }
}

TEST_F(FusedMoeTest, TheTailLeavesTheBitsOfItsSteps) {
  Numbers numbers(702);
  const LaunchKey key = KernelBench::Launch();
  for (const MoeCase& c : kMoeCases) {
    SCOPED_TRACE(NameOf(c));
    const int64_t slots = c.capacity * c.top_k;
    const int64_t hidden = c.shape.hidden;
    const int64_t width = c.shape.width;
    const std::vector<int32_t> ids =
        DrawnIds(numbers, c.live, c.top_k,
                 SpreadIds(c.shape.num_experts, c.in_use), true);
    RankExperts experts(numbers, c.shape, Here(c), ids);
    const DType dtype = c.shape.down;
    Stored shared_down(numbers, dtype, hidden * c.shared_width);
    const std::vector<float> weights = UniformValues(numbers, c.live * c.top_k);
    const std::vector<float> act =
        UniformValues(numbers, c.live * c.top_k * width);
    const std::vector<float> shared_act =
        UniformValues(numbers, c.live * c.shared_width);
    const std::vector<float> gate = UniformValues(numbers, c.live, 4.0f);
    const std::vector<float> residual = UniformValues(numbers, c.live * hidden);
    DeviceRows rows(c.live, c.capacity);
    DeviceArray<int32_t> device_ids(slots);
    device_ids.Set(ids);
    Inputs device_weights(DType::kF32, weights, slots);
    Inputs device_act(DType::kF32, act, slots * width);
    Inputs device_shared(DType::kF32, shared_act, c.capacity * c.shared_width);
    Inputs device_gate(DType::kF32, gate, c.capacity);
    const auto floats = [](Inputs& inputs) {
      return static_cast<const float*>(inputs.view().data);
    };
    DeviceArray<float> down(slots * hidden);
    DeviceArray<float> shared(c.capacity * hidden);
    DeviceArray<float> combined(c.capacity * hidden);
    DeviceArray<float> reduced(c.capacity * hidden);
    DeviceArray<float> gated(c.capacity * hidden);
    const auto run = [&](bool fused, bool in_place) {
      DeviceArray<float> from(c.capacity * hidden);
      from.Set(residual);
      DeviceArray<float> out(c.capacity * hidden);
      const ExpertTableView table = experts.device();
      const MoeTailArgs args = {
          .down = {.rows = rows.view(),
                   .top_k = c.top_k,
                   .table = table,
                   .ids = device_ids.data(),
                   .act = floats(device_act),
                   .out = down.data()},
          .shared_down = {.rows = rows.view(),
                          .x = device_shared.view(),
                          .weight = {.data = shared_down.data(),
                                     .dtype = dtype,
                                     .rows = hidden,
                                     .cols = c.shared_width},
                          .out = shared.data()},
          .combine = {.rows = rows.view(),
                      .top_k = c.top_k,
                      .num_experts = c.shape.num_experts,
                      .lanes = c.lanes,
                      .first_lane = c.first_lane,
                      .num_lanes = c.num_lanes,
                      .width = hidden,
                      .ids = device_ids.data(),
                      .weights = floats(device_weights),
                      .d = down.data(),
                      .global_to_local = table.global_to_local,
                      .out = combined.data()},
          .reduce = {.rows = rows.view(),
                     .width = hidden,
                     .x = combined.data(),
                     .out = reduced.data()},
          .gated = {.rows = rows.view(),
                    .width = hidden,
                    .addend = reduced.data(),
                    .gate = floats(device_gate),
                    .x = shared.data(),
                    .out = gated.data()},
          .add = {.rows = rows.view(),
                  .width = hidden,
                  .residual = from.data(),
                  .addend = gated.data(),
                  .out = in_place ? from.data() : out.data()}};
      if (fused) {
        kernels().MoeTail(key, args);
      } else {
        kernels().IndexedDown(key, args.down);
        kernels().Projection(key, args.shared_down);
        kernels().Combine(key, args.combine);
        kernels().IdentityReduce(key, args.reduce);
        kernels().GatedAdd(key, args.gated);
        kernels().ResidualAdd(key, args.add);
      }
      Finish();
      DeviceArray<float>& result = in_place ? from : out;
      EXPECT_TRUE(result.CanariesIntact());
      std::vector<float> values = result.Get();
      const auto count = static_cast<size_t>(c.live * hidden);
      EXPECT_TRUE(AllUnwritten(std::span(values).subspan(count)));
      values.resize(count);
      return values;
    };
    const std::vector<float> got = run(true, false);
    const std::vector<float> plain = run(false, false);
    EXPECT_TRUE(SameBits(got, plain));
    EXPECT_TRUE(SameBits(run(true, true), plain));
    if (c.live == 0) continue;

    const auto live = static_cast<int32_t>(c.live);
    const Rows host = {.live = &live, .capacity = c.capacity};
    std::vector<float> host_down(static_cast<size_t>(slots * hidden));
    std::vector<float> host_shared(got.size());
    std::vector<float> sum(got.size());
    cpu().IndexedDown(key, {.rows = host,
                            .top_k = c.top_k,
                            .table = experts.host(),
                            .ids = ids.data(),
                            .act = act.data(),
                            .out = host_down.data()});
    cpu().Projection(key, {.rows = host,
                           .x = {.data = shared_act.data()},
                           .weight = {.data = shared_down.values().data(),
                                      .dtype = DType::kF32,
                                      .rows = hidden,
                                      .cols = c.shared_width},
                           .out = host_shared.data()});
    cpu().Combine(key, {.rows = host,
                        .top_k = c.top_k,
                        .num_experts = c.shape.num_experts,
                        .lanes = c.lanes,
                        .first_lane = c.first_lane,
                        .num_lanes = c.num_lanes,
                        .width = hidden,
                        .ids = ids.data(),
                        .weights = weights.data(),
                        .d = host_down.data(),
                        .global_to_local = experts.host().global_to_local,
                        .out = sum.data()});
    cpu().GatedAdd(key, {.rows = host,
                         .width = hidden,
                         .addend = sum.data(),
                         .gate = gate.data(),
                         .x = host_shared.data(),
                         .out = sum.data()});
    cpu().ResidualAdd(key, {.rows = host,
                            .width = hidden,
                            .residual = residual.data(),
                            .addend = sum.data(),
                            .out = sum.data()});
    EXPECT_LE(RelativeError(got, std::span<const float>(sum)), kFloatBound);
  }
}

}  // namespace
}  // namespace signet::backend::gpu
