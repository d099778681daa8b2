// The grouped order on the GPU: the CPU's, number for number.

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "backend/kernel_bench.h"
#include "tests/conformance/grouped_testing.h"
#include "tests/conformance/product_testing.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using backend::testing::KernelBench;

class ScatterTest : public ProductTest {
 protected:
  /// Scatters on both and compares every element of every output.
  void Check(const Routing& routing, int64_t capacity, int64_t tile_rows,
             const std::vector<int32_t>& global_to_local) {
    SCOPED_TRACE(routing.name + ", " + std::to_string(routing.live) + " of " +
                 std::to_string(capacity) + " rows, top " +
                 std::to_string(routing.top_k) + ", tile " +
                 std::to_string(tile_rows));
    HostGrouped want(cpu(), routing, capacity, tile_rows, global_to_local);

    // Reading an id past the live ones would end the kernel.
    std::vector<int32_t> ids = routing.ids;
    ids.resize(static_cast<size_t>(capacity * routing.top_k),
               std::numeric_limits<int32_t>::max());
    DeviceArray<int32_t> device_ids(ids);
    DeviceArray<int32_t> map(global_to_local);
    DeviceRows rows(routing.live, capacity);
    DeviceArray<int32_t> counts(want.num_local);
    DeviceArray<int32_t> offsets(want.num_local + 1);
    DeviceArray<int32_t> sorted_slot(want.max_rows);
    DeviceArray<int32_t> tile_expert(want.max_rows / tile_rows);
    DeviceArray<int32_t> inverse_perm(capacity * routing.top_k);
    for (int run = 0; run < 2; ++run) {
      kernels().Scatter(
          KernelBench::Launch(),
          {.rows = rows.view(),
           .top_k = routing.top_k,
           .num_experts = static_cast<int64_t>(global_to_local.size()),
           .num_local = want.num_local,
           .global_to_local = map.data(),
           .tile_rows = tile_rows,
           .max_rows = want.max_rows,
           .ids = device_ids.data(),
           .counts = counts.data(),
           .offsets = offsets.data(),
           .sorted_slot = sorted_slot.data(),
           .tile_expert = tile_expert.data(),
           .inverse_perm = inverse_perm.data()});
      Finish();
      EXPECT_EQ(counts.Get(), want.counts);
      EXPECT_EQ(offsets.Get(), want.offsets);
      EXPECT_EQ(sorted_slot.Get(), want.sorted_slot);
      EXPECT_EQ(tile_expert.Get(), want.tile_expert);
      EXPECT_EQ(inverse_perm.Get(), want.inverse_perm);
      EXPECT_TRUE(counts.CanariesIntact() && offsets.CanariesIntact() &&
                  sorted_slot.CanariesIntact() &&
                  tile_expert.CanariesIntact() &&
                  inverse_perm.CanariesIntact());
    }
  }
};

TEST_F(ScatterTest, EveryRoutingOnEveryRankIsTheCpus) {
  Numbers numbers(1);
  for (int64_t num_experts : {4, 9, 70}) {
    for (const Routing& routing : Routings(numbers, num_experts)) {
      for (int64_t tile_rows : {1, 3, 16}) {
        Check(routing, routing.live + 2, tile_rows,
              OwnedRange(num_experts, 0, num_experts));
        Check(routing, routing.live + 2, tile_rows,
              OwnedRange(num_experts, num_experts / 2, num_experts));
      }
    }
  }
}

TEST_F(ScatterTest, FlagshipSizesAreTheCpus) {
  Numbers numbers(2);
  for (int64_t live : {1, 9, 63, 64, 65, 200, 256, 257, 333, 512, 513, 2048,
                       4096, 5000, 8192}) {
    const Routing routing = RandomRouting(numbers, live, 8, 256);
    for (int64_t tile_rows : {8, 16, 64, 128}) {
      Check(routing, live, tile_rows, OwnedRange(256, 0, 256));
      Check(routing, live + 77, tile_rows, OwnedRange(256, 64, 128));
    }
  }
}

TEST_F(ScatterTest, ManyExpertsAndManySlotsAreTheCpus) {
  Numbers numbers(3);
  for (int64_t num_experts : {33, 512, 1030, 2000}) {
    for (int64_t live : {1, 100, 1111, 6000}) {
      Check(RandomRouting(numbers, live, 10, num_experts), live + 3, 16,
            OwnedRange(num_experts, 0, num_experts));
    }
  }
  const int64_t live = 8192;
  Routing heavy = RandomRouting(numbers, live, 8, 512);
  heavy.name = "two experts have nearly all";
  for (int64_t s = 0; s < live * 8; s += 8) {
    heavy.ids[static_cast<size_t>(s)] = s % 56 == 0 ? 300 : 301;
    for (int64_t k = 1; k < 8; ++k) {
      heavy.ids[static_cast<size_t>(s + k)] = s % 72 == 0 ? -1 : 17;
    }
  }
  Check(heavy, live, 64, OwnedRange(512, 0, 512));
  Check(heavy, live, 64, OwnedRange(512, 256, 512));
}

// In one block and in a cluster of them, few and many rounds a warp.
TEST_F(ScatterTest, DegenerateRoutingsOfEverySizeAreTheCpus) {
  const auto routing_of = [](std::string name, int64_t live, auto id_of) {
    Routing routing = {std::move(name), live, 8, {}};
    for (int64_t s = 0; s < live * 8; ++s) {
      routing.ids.push_back(static_cast<int32_t>(id_of(s)));
    }
    return routing;
  };
  for (int64_t live : {1, 63, 65, 256, 257, 512, 2048, 8192}) {
    const Routing routings[] = {
        routing_of("all to the last", live, [](int64_t) { return 255; }),
        routing_of("all to the first", live, [](int64_t) { return 0; }),
        routing_of("all absent", live, [](int64_t) { return -1; }),
        routing_of("two of three absent", live,
                   [](int64_t s) { return s % 3 == 0 ? s % 256 : -1; }),
        routing_of("in turn", live, [](int64_t s) { return s % 256; }),
        routing_of("the upper half", live,
                   [](int64_t s) { return 128 + s % 128; }),
    };
    for (const Routing& routing : routings) {
      for (int64_t tile_rows : {16, 64}) {
        Check(routing, live, tile_rows, OwnedRange(256, 0, 256));
        Check(routing, live, tile_rows, OwnedRange(256, 0, 128));
      }
      // Most rows are not live.
      Check(routing, 3 * live + 1, 64, OwnedRange(256, 0, 256));
    }
  }
}

TEST_F(ScatterTest, UnscatterPutsRealRowsBackAndLeavesTheRest) {
  Numbers numbers(4);
  for (int64_t width : {1, 5, 44, 128, 512, 516}) {
    for (int64_t live : {0, 1, 33, 300}) {
      const int64_t capacity = live + 5;
      const int64_t top_k = 4;
      const Routing routing = RandomRouting(numbers, live, top_k, 16);
      HostGrouped grouped(cpu(), routing, capacity, 8, OwnedRange(16, 3, 14));
      std::vector<float> y(static_cast<size_t>(grouped.max_rows * 2 * width));
      for (float& value : y) value = numbers.Uniform();
      DeviceArray<int32_t> sorted_slot(grouped.sorted_slot);
      DeviceArray<float> device_y(y);
      DeviceArray<float> gate(capacity * top_k * width);
      DeviceArray<float> up(capacity * top_k * width);
      DeviceRows rows(live, capacity);
      kernels().Unscatter(KernelBench::Launch(),
                          {.rows = rows.view(),
                           .max_rows = grouped.max_rows,
                           .width = width,
                           .sorted_slot = sorted_slot.data(),
                           .y = device_y.data(),
                           .gate = gate.data(),
                           .up = up.data()});
      Finish();
      EXPECT_TRUE(gate.CanariesIntact() && up.CanariesIntact());
      const std::vector<float> got_gate = gate.Get();
      const std::vector<float> got_up = up.Get();
      int64_t wrong = 0;
      for (int64_t s = 0; s < capacity * top_k; ++s) {
        const int64_t row = grouped.inverse_perm[static_cast<size_t>(s)];
        for (int64_t i = 0; i < width; ++i) {
          const float g = got_gate[static_cast<size_t>(s * width + i)];
          const float u = got_up[static_cast<size_t>(s * width + i)];
          if (row < 0) {
            wrong += !IsUnwritten(g) || !IsUnwritten(u);
            continue;
          }
          const size_t from = static_cast<size_t>(row * 2 * width + i);
          wrong += g != y[from] || u != y[from + static_cast<size_t>(width)];
        }
      }
      EXPECT_EQ(wrong, 0) << "width " << width << ", live " << live;
    }
  }
}

}  // namespace
}  // namespace signet::backend::gpu
