// Indexed expert products against the CPU's of the same values: every form of
// the kernel; skipped slots are left alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/kernel_bench.h"
#include "tests/conformance/expert_testing.h"
#include "tests/conformance/product_testing.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using backend::testing::KernelBench;
using tensor::DType;

struct IndexedCase {
  int64_t capacity;
  int64_t live;
  int64_t top_k;
  ExpertShape shape;
  int64_t in_use = 8;      // experts that routes name
  int64_t here_begin = 0;  // experts of this rank
  int64_t here_end = 1 << 30;
};

const IndexedCase kCases[] = {
    {1, 1, 8, {256, 2048, 512}, 12},
    {2, 2, 8, {256, 2048, 512}, 12},
    {8, 7, 8, {256, 2048, 512}, 12},
    {1, 1, 2, {16, 4096, 1100}, 3},
    {3, 3, 2, {16, 2056, 37}, 5},
    {1, 1, 1, {8, 32, 22}, 8},
    {5, 4, 3, {22, 44, 22}, 9},
    {3, 3, 4, {30, 40, 24}, 7},
    {8, 8, 4, {600, 64, 48}, 20},
    // Foreign experts.
    {6, 6, 4, {16, 2048, 40}, 16, 4, 8},
    {6, 6, 4, {16, 72, 2048}, 16, 8, 16},
    // Other dtypes, mixed.
    {4, 3, 2, {12, 40, 24, DType::kF32, DType::kBF16, DType::kF16}, 6},
    {2, 2, 2, {12, 2048, 30, DType::kF16, DType::kF32, DType::kF32}, 6},
    {1, 1, 2, {4, 20, 1030, DType::kF32, DType::kF32, DType::kF32}, 4},
    // More rows and slots than a block keeps.
    {130, 121, 3, {20, 48, 20}, 10},
    {40, 40, 8, {64, 2048, 16}, 16},
    {3, 2, 300, {512, 24, 16}, 310},
    {2, 0, 2, {8, 64, 16}, 4},
};

std::string NameOf(const IndexedCase& c) {
  return std::to_string(c.live) + " of " + std::to_string(c.capacity) +
         " rows, " + std::to_string(c.top_k) + " of " +
         std::to_string(c.shape.num_experts) + " experts of " +
         std::to_string(c.shape.hidden) + " x " +
         std::to_string(c.shape.width) + ", gate " +
         std::string(tensor::Name(c.shape.gate));
}

class IndexedExpertsGpuTest : public ProductTest {
 protected:
  struct Problem {
    Problem(Numbers& numbers, const IndexedCase& c)
        : ids(DrawnIds(numbers, c.live, c.top_k,
                       SpreadIds(c.shape.num_experts, c.in_use), true)),
          experts(numbers, c.shape,
                  SomeHere(c.shape.num_experts, c.here_begin,
                           std::min(c.here_end, c.shape.num_experts)),
                  ids),
          rows(c.live, c.capacity),
          device_ids(c.capacity * c.top_k),
          host_live(static_cast<int32_t>(c.live)),
          host_rows({.live = &host_live, .capacity = c.capacity}) {
      device_ids.Set(ids);
    }
    std::vector<int32_t> ids;
    RankExperts experts;
    DeviceRows rows;
    DeviceArray<int32_t> device_ids;
    int32_t host_live;
    Rows host_rows;
  };

  /// The slots computed here agree; all else is as it was.
  void ExpectSlots(const Problem& p, const std::vector<float>& got,
                   const std::vector<float>& want, int64_t width) {
    std::vector<float> computed;
    std::vector<float> wanted;
    for (size_t s = 0; s * static_cast<size_t>(width) < got.size(); ++s) {
      const auto row = std::span(got).subspan(s * static_cast<size_t>(width),
                                              static_cast<size_t>(width));
      if (s >= p.ids.size() || !p.experts.Computes(p.ids[s])) {
        ASSERT_TRUE(AllUnwritten(row)) << "slot " << s;
        continue;
      }
      computed.insert(computed.end(), row.begin(), row.end());
      const auto from = want.begin() + static_cast<int64_t>(s) * width;
      wanted.insert(wanted.end(), from, from + width);
    }
    if (computed.empty()) return;
    EXPECT_LE(RelativeError(computed, std::span<const float>(wanted)),
              kFloatBound);
  }
};

TEST_F(IndexedExpertsGpuTest, GateAndUpAgreeWithTheCpu) {
  Numbers numbers(401);
  for (const IndexedCase& c : kCases) {
    SCOPED_TRACE(NameOf(c));
    Problem p(numbers, c);
    const int64_t hidden = c.shape.hidden;
    const int64_t width = c.shape.width;
    const std::vector<float> x = UniformValues(numbers, c.live * hidden);
    Inputs inputs(DType::kF32, x, c.capacity * hidden);
    const int64_t count = c.capacity * c.top_k * width;
    const auto run = [&](DeviceArray<float>& gate, DeviceArray<float>& up) {
      kernels().IndexedGateUp(
          KernelBench::Launch(),
          {.rows = p.rows.view(),
           .top_k = c.top_k,
           .table = p.experts.device(),
           .ids = p.device_ids.data(),
           .x = static_cast<const float*>(inputs.view().data),
           .gate = gate.data(),
           .up = up.data()});
      Finish();
      EXPECT_TRUE(gate.CanariesIntact() && up.CanariesIntact());
    };
    DeviceArray<float> gate(count);
    DeviceArray<float> up(count);
    run(gate, up);
    std::vector<float> want_gate(static_cast<size_t>(count));
    std::vector<float> want_up(static_cast<size_t>(count));
    cpu().IndexedGateUp(KernelBench::Launch(), {.rows = p.host_rows,
                                                .top_k = c.top_k,
                                                .table = p.experts.host(),
                                                .ids = p.ids.data(),
                                                .x = x.data(),
                                                .gate = want_gate.data(),
                                                .up = want_up.data()});
    ExpectSlots(p, gate.Get(), want_gate, width);
    ExpectSlots(p, up.Get(), want_up, width);
    DeviceArray<float> gate_again(count);
    DeviceArray<float> up_again(count);
    run(gate_again, up_again);
    EXPECT_TRUE(SameBits(gate.Get(), gate_again.Get()));
    EXPECT_TRUE(SameBits(up.Get(), up_again.Get()));
  }
}

TEST_F(IndexedExpertsGpuTest, DownAgreesWithTheCpu) {
  Numbers numbers(402);
  for (const IndexedCase& c : kCases) {
    SCOPED_TRACE(NameOf(c));
    Problem p(numbers, c);
    const int64_t hidden = c.shape.hidden;
    const int64_t width = c.shape.width;
    const std::vector<float> act =
        UniformValues(numbers, c.live * c.top_k * width);
    Inputs inputs(DType::kF32, act, c.capacity * c.top_k * width);
    const int64_t count = c.capacity * c.top_k * hidden;
    DeviceArray<float> out(count);
    kernels().IndexedDown(KernelBench::Launch(),
                          {.rows = p.rows.view(),
                           .top_k = c.top_k,
                           .table = p.experts.device(),
                           .ids = p.device_ids.data(),
                           .act = static_cast<const float*>(inputs.view().data),
                           .out = out.data()});
    Finish();
    EXPECT_TRUE(out.CanariesIntact());
    std::vector<float> want(static_cast<size_t>(count));
    cpu().IndexedDown(KernelBench::Launch(), {.rows = p.host_rows,
                                              .top_k = c.top_k,
                                              .table = p.experts.host(),
                                              .ids = p.ids.data(),
                                              .act = act.data(),
                                              .out = want.data()});
    ExpectSlots(p, out.Get(), want, hidden);
  }
}

TEST_F(IndexedExpertsGpuTest, ASlotHasTheBitsOfThePlainProduct) {
  Numbers numbers(403);
  for (int64_t hidden : {40, 2048, 4096}) {
    const int64_t width = 72;
    const int64_t capacity = 3;
    const int64_t top_k = 2;
    const std::vector<int32_t> ids = {1, 0, 3, 2, 2, 1};
    RankExperts experts(numbers, {4, hidden, width}, AllHere(4), ids);
    const std::vector<float> x = UniformValues(numbers, capacity * hidden);
    DeviceArray<float> device_x(x);
    DeviceArray<int32_t> device_ids(ids);
    DeviceRows rows(capacity, capacity);
    DeviceArray<float> gate(capacity * top_k * width);
    DeviceArray<float> up(capacity * top_k * width);
    kernels().IndexedGateUp(KernelBench::Launch(), {.rows = rows.view(),
                                                    .top_k = top_k,
                                                    .table = experts.device(),
                                                    .ids = device_ids.data(),
                                                    .x = device_x.data(),
                                                    .gate = gate.data(),
                                                    .up = up.data()});
    Finish();
    std::vector<ExpertPointers> pointers(4);
    ASSERT_EQ(cudaMemcpy(pointers.data(), experts.device().experts,
                         sizeof(ExpertPointers) * 4, cudaMemcpyDeviceToHost),
              kOk);
    for (int64_t s = 0; s < capacity * top_k; ++s) {
      DeviceRows one(1, 1);
      DeviceArray<float> out(width);
      kernels().Projection(
          KernelBench::Launch(),
          {.rows = one.view(),
           .x = {.data = device_x.data() + s / top_k * hidden},
           .weight =
               {.data =
                    pointers[static_cast<size_t>(ids[static_cast<size_t>(s)])]
                        .up,
                .rows = width,
                .cols = hidden},
           .out = out.data()});
      Finish();
      const std::vector<float> all = up.Get();
      EXPECT_TRUE(SameBits(out.Get(),
                           std::vector<float>(all.begin() + s * width,
                                              all.begin() + (s + 1) * width)))
          << "slot " << s << ", hidden " << hidden;
    }
  }
}

}  // namespace
}  // namespace signet::backend::gpu
