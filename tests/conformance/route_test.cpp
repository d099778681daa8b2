// Routers against the CPU's: ids, weights and flags bit for bit.

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "backend/kernel_bench.h"
#include "tests/conformance/product_testing.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using backend::testing::KernelBench;

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
  int32_t flag = 0;
};

class RouteGpuTest : public ProductTest {
 protected:
  /// Runs a router on both and compares; `scores` of the live rows.
  void ExpectSame(const std::vector<float>& scores, int64_t num_experts,
                  int64_t top_k, bool renormalise, int64_t live,
                  int64_t capacity) {
    SCOPED_TRACE(std::to_string(live) + " of " + std::to_string(capacity) +
                 " rows, " + std::to_string(top_k) + " of " +
                 std::to_string(num_experts) + " experts");
    DeviceArray<float> device_scores(capacity * num_experts);
    device_scores.Set(scores);
    RouteArgs args = {
        .num_experts = num_experts, .top_k = top_k, .renormalise = renormalise};
    Compare(live, capacity, top_k,
            [&](bool on_gpu, const Rows& rows, int32_t* ids, float* weights,
                int32_t* flag) {
              args.rows = rows;
              args.scores = on_gpu ? device_scores.data() : scores.data();
              args.ids = ids;
              args.weights = weights;
              args.flag = flag;
              (on_gpu ? kernels() : cpu()).Route(KernelBench::Launch(), args);
            });
  }
  template <typename Body>
  void Compare(int64_t live, int64_t capacity, int64_t top_k,
               const Body& body) {
    DeviceRows rows(live, capacity);
    DeviceArray<int32_t> ids(capacity * top_k);
    DeviceArray<float> weights(capacity * top_k);
    DeviceArray<int32_t> flag(std::vector<int32_t>{8});  // another's bit stays
    body(true, rows.view(), ids.data(), weights.data(), flag.data());
    Finish();
    EXPECT_TRUE(ids.CanariesIntact() && weights.CanariesIntact() &&
                flag.CanariesIntact());
    Routed got = {ids.Get(), weights.Get(), flag.Get()[0]};
    const auto slots = static_cast<size_t>(live * top_k);
    for (size_t s = slots; s < got.ids.size(); ++s) {
      EXPECT_TRUE(got.ids[s] == -1 && IsUnwritten(got.weights[s]));
    }
    got.ids.resize(slots);
    got.weights.resize(slots);
    Routed want = {std::vector<int32_t>(slots), std::vector<float>(slots), 8};
    const auto host_live = static_cast<int32_t>(live);
    body(false, {.live = &host_live, .capacity = capacity}, want.ids.data(),
         want.weights.data(), &want.flag);
    EXPECT_EQ(got.ids, want.ids);
    EXPECT_TRUE(SameBits(got.weights, want.weights));
    EXPECT_EQ(got.flag, want.flag);
  }
};

TEST_F(RouteGpuTest, IsTheCpus) {
  Numbers numbers(301);
  for (int64_t num_experts : {1, 8, 22, 31, 129, 256, 257, 1030}) {
    for (int64_t top_k : {int64_t{1}, int64_t{8}, int64_t{33}, num_experts}) {
      if (top_k > num_experts) continue;
      for (bool renormalise : {true, false}) {
        const int64_t live = 7;
        std::vector<float> scores(static_cast<size_t>(live * num_experts));
        for (float& score : scores) score = 12.0f * numbers.Uniform();
        ExpectSame(scores, num_experts, top_k, renormalise, live, live + 2);
      }
    }
  }
  std::vector<float> scores(4001 * 64);
  for (float& score : scores) score = 6.0f * numbers.Uniform();
  ExpectSame(scores, 64, 6, true, 4001, 4097);
  ExpectSame({}, 64, 6, true, 0, 3);
}

TEST_F(RouteGpuTest, TiesGoToTheLowerId) {
  Numbers numbers(302);
  for (int64_t num_experts : {40, 256, 300}) {
    const int64_t live = 50;
    std::vector<float> scores(static_cast<size_t>(live * num_experts));
    for (float& score : scores) {
      score = static_cast<float>(numbers.Below(5)) - 2.0f;
      if (score == 0.0f && numbers.Below(2) == 0) score = -0.0f;
    }
    for (int64_t top_k : {1, 2, 8, 40}) {
      ExpectSame(scores, num_experts, top_k, true, live, live);
    }
  }
  ExpectSame(std::vector<float>(256, 3.25f), 256, 8, true, 1, 1);
  ExpectSame(std::vector<float>(256, -3e38f), 256, 8, false, 1, 1);
}

TEST_F(RouteGpuTest, NonFiniteRowsAreAbsentAndFlagged) {
  Numbers numbers(303);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (int64_t num_experts : {22, 256, 600}) {
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf}) {
      for (int64_t at : {int64_t{0}, int64_t{5}, num_experts - 1}) {
        std::vector<float> scores(static_cast<size_t>(3 * num_experts));
        for (float& score : scores) score = numbers.Uniform();
        scores[static_cast<size_t>(num_experts + at)] = bad;
        ExpectSame(scores, num_experts, 4, true, 3, 5);
      }
    }
  }
}

TEST_F(RouteGpuTest, PrecomputedRoutesAreTheCpus) {
  Numbers numbers(304);
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (int64_t top_k : {1, 3, 8, 40}) {
    for (const auto& [live, capacity] :
         {std::pair<int64_t, int64_t>{1, 1}, {9, 11}, {700, 701}, {0, 2}}) {
      const int64_t num_experts = 64;
      std::vector<int32_t> in_ids;
      std::vector<float> in_weights;
      for (int64_t t = 0; t < live; ++t) {
        const int64_t first = numbers.Below(num_experts);
        for (int64_t k = 0; k < top_k; ++k) {
          in_ids.push_back(static_cast<int32_t>((first + 7 * k) % num_experts));
          in_weights.push_back(numbers.Uniform());
        }
        // Every fourth row is unsound, each in one of the ways.
        const auto slot = static_cast<size_t>(t * top_k + numbers.Below(top_k));
        if (t % 16 == 3) in_ids[slot] = 64;
        if (t % 16 == 7) in_ids[slot] = -1;
        if (t % 16 == 11) in_weights[slot] = kNaN;
        if (t % 16 == 15) in_ids[slot] = in_ids[static_cast<size_t>(t * top_k)];
      }
      DeviceArray<int32_t> device_ids(capacity * top_k);
      DeviceArray<float> device_weights(capacity * top_k);
      device_ids.Set(in_ids);
      device_weights.Set(in_weights);
      PrecomputedRouteArgs args = {.num_experts = num_experts, .top_k = top_k};
      Compare(live, capacity, top_k,
              [&](bool on_gpu, const Rows& rows, int32_t* ids, float* weights,
                  int32_t* flag) {
                args.rows = rows;
                args.in_ids = on_gpu ? device_ids.data() : in_ids.data();
                args.in_weights =
                    on_gpu ? device_weights.data() : in_weights.data();
                args.ids = ids;
                args.weights = weights;
                args.flag = flag;
                (on_gpu ? kernels() : cpu())
                    .PrecomputedRoute(KernelBench::Launch(), args);
              });
    }
  }
}

}  // namespace
}  // namespace signet::backend::gpu
