// The routed block, norm to residual, in one call: it leaves the bits of its
// steps in the route and in the residual, and reads nothing that an earlier
// call left.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/kernel_bench.h"
#include "tests/conformance/fused_moe_block_testing.h"

namespace signet::backend::gpu {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using backend::testing::KernelBench;
using tensor::DType;

constexpr ExpertShape FloatExperts(int64_t experts, int64_t hidden,
                                   int64_t width) {
  return {experts, hidden, width, DType::kF32, DType::kF32, DType::kF32};
}

const BlockCase kBlockCases[] = {
    // The flagship's shape.
    {{1, 1, 8, {256, 2048, 512}, 512}},
    {{2, 2, 8, {256, 2048, 512}, 512}},
    {{5, 5, 8, {256, 2048, 512}, 512}},
    {{8, 8, 8, {256, 2048, 512}, 512}},
    {{1, 1, 8, {64, 2048, 128}, 512}},
    {{2, 1, 8, {64, 2048, 128}, 128}},
    {{5, 4, 8, {64, 2048, 128}, 256}},
    {{8, 7, 8, {64, 2048, 128}, 512}},
    {{3, 3, 8, {64, 2048, 128}, 40}},
    {{1, 1, 3, {64, 2048, 128}, 64}},
    {{8, 6, 3, {64, 2048, 128}, 512}},
    {{1, 1, 1, {64, 2048, 128}, 512}},
    // More rows of the shared expert than the grid has warps for at once.
    {{1, 1, 4, {64, 2048, 64}, 1208}},
    {{1, 1, 4, {32, 4096, 64}, 64, 8}},
    {{4, 4, 4, {32, 4096, 64}, 64, 8}},
    // A rank of several.
    {{1, 1, 8, {256, 2048, 128}, 512, 24, 8, 4, 4}},
    {{2, 2, 8, {64, 2048, 128}, 512, 24, 8, 6, 2}},
    {{8, 8, 8, {64, 2048, 128}, 128, 24, 8, 6, 2}},
    {{5, 5, 3, {64, 2048, 128}, 64, 8, 8, 3, 1}},
    {{2, 2, 8, {256, 2048, 64}, 64, 24, 8, 2, 2}},
    {{2, 2, 8, {60, 2048, 64}, 64, 24, 4, 0, 4}},
    // No expert of a token is here.
    {{1, 1, 3, {64, 2048, 128}, 64, 4, 16, 1, 1}},
    // Every token's scores are bad, or some.
    {{1, 1, 8, {64, 2048, 128}, 512}, DType::kBF16, 0},
    {{2, 2, 8, {64, 2048, 128}, 512}, DType::kBF16, 1},
    {{8, 8, 8, {64, 2048, 128}, 512}, DType::kBF16, 0},
    // None live.
    {{1, 0, 8, {64, 2048, 128}, 512}},
    {{2, 0, 8, {64, 2048, 128}, 512}},
    {{8, 0, 8, {64, 2048, 128}, 512}},
    // One part or the other is not what the short kernels take.
    {{1, 1, 8, {64, 2048, 768}, 512}},
    {{3, 3, 4, {64, 2048, 128}, 1024}},
    {{1, 1, 8, {64, 2048, 128}, 128, 12, 8, 0, 8, false}},
    {{2, 2, 8, {64, 2048, 128}, 128, 12, 8, 0, 8, false}},
    {{1, 1, 8, {512, 2048, 64}, 64, 24}},
    {{1, 1, 8, {64, 2048, 128}, 512}, DType::kF32},
    {{3, 3, 8, {64, 2048, 128}, 128}, DType::kF32},
    {{1, 1, 2, FloatExperts(8, 2048, 24), 24, 8}},
    {{2, 2, 2, FloatExperts(8, 2048, 24), 24, 8}, DType::kF32},
    {{1, 1, 2, {8, 40, 24}, 8, 8}},
    {{5, 5, 2, {8, 40, 24}, 8, 8}},
    {{1, 1, 20, {64, 2048, 64}, 64, 40}},
    {{2, 2, 20, {640, 64, 40}, 48, 40}},
    {{8, 8, 20, {64, 2048, 64}, 64, 40}},
};

class FusedMoeBlockTest : public ProductTest {
 protected:
  void RunSteps(const MoeBlockArgs& args) {
    const LaunchKey key = KernelBench::Launch();
    kernels().Norm(key, args.products.norm);
    for (int p = 0; p < args.products.num_products; ++p) {
      kernels().Projection(key, args.products.products[static_cast<size_t>(p)]);
    }
    kernels().Activation(key, args.products.activation);
    kernels().Route(key, args.experts.route);
    kernels().IndexedGateUp(key, args.experts.gate_up);
    kernels().Activation(key, args.experts.activation);
    kernels().IndexedDown(key, args.tail.down);
    kernels().Projection(key, args.tail.shared_down);
    kernels().Combine(key, args.tail.combine);
    kernels().IdentityReduce(key, args.tail.reduce);
    kernels().GatedAdd(key, args.tail.gated);
    kernels().ResidualAdd(key, args.tail.add);
  }
  void RunBlock(const MoeBlockArgs& args) {
    kernels().MoeBlock(KernelBench::Launch(), args);
  }
};

/// The first `count` of `values`.
template <typename T>
std::vector<T> FirstOf(std::vector<T> values, int64_t count) {
  values.resize(static_cast<size_t>(count));
  return values;
}

TEST_F(FusedMoeBlockTest, LeavesTheBitsOfItsSteps) {
  Numbers numbers(801);
  for (const BlockCase& block : kBlockCases) {
    const MoeCase& c = block.moe;
    SCOPED_TRACE(NameOf(c) + ", " + std::string(tensor::Name(block.products)) +
                 ", bad " + std::to_string(block.bad));
    Weights weights(numbers, block);
    Tokens tokens(numbers, block, c.live);
    Buffers plain(c);
    Residual want(c, tokens);
    RunSteps(ArgsOf(block, weights, tokens, plain, want));
    Finish();
    Buffers fused(c);
    Residual got(c, tokens);
    const MoeBlockArgs args = ArgsOf(block, weights, tokens, fused, got);
    RunBlock(args);
    Finish();

    const std::vector<int32_t> ids = fused.ids.Get();
    EXPECT_EQ(ids, plain.ids.Get());
    EXPECT_TRUE(SameBits(fused.weights.Get(), plain.weights.Get()));
    EXPECT_EQ(got.flag.Get(), want.flag.Get());
    const std::vector<float> out = got.out.Get();
    EXPECT_TRUE(SameBits(out, want.out.Get()));
    EXPECT_TRUE(fused.CanariesIntact() && got.out.CanariesIntact() &&
                got.flag.CanariesIntact());

    // That the case is what it says.
    const auto written = static_cast<size_t>(c.live * c.shape.hidden);
    EXPECT_TRUE(AllUnwritten(std::span(out).subspan(written)));
    for (size_t i = 0; i < written; ++i) ASSERT_TRUE(std::isfinite(out[i]));
    const bool any_bad = c.live > block.bad;
    EXPECT_EQ(got.flag.Get()[0], any_bad ? 8 | kFlagNonFinite : 8);
    for (int64_t s = 0; s < c.live * c.top_k; ++s) {
      const bool bad = s / c.top_k % 5 == block.bad;
      EXPECT_EQ(ids[static_cast<size_t>(s)] < 0, bad) << "slot " << s;
    }

    // The residual in place.
    MoeBlockArgs in_place = args;
    in_place.tail.add.out = got.x.data();
    RunBlock(in_place);
    Finish();
    EXPECT_TRUE(SameBits(got.x.Get(), out));
  }
}

// Calls that follow each other at once, on the same buffers, with other tokens
// and other numbers of them: nothing of a call is read in the next.
TEST_F(FusedMoeBlockTest, LeavesNothingToTheNext) {
  Numbers numbers(802);
  for (const BlockCase& block : kBlockCases) {
    const MoeCase& c = block.moe;
    SCOPED_TRACE(NameOf(c) + ", " + std::string(tensor::Name(block.products)) +
                 ", bad " + std::to_string(block.bad));
    Weights weights(numbers, block);
    BlockCase other = block;
    other.bad = (block.bad + 1) % 5;
    Tokens first(numbers, block, c.live);
    Tokens second(numbers, other, c.live == 0 ? c.capacity : (c.live + 1) / 2);
    Tokens* const calls[] = {&first, &second, &first, &second};

    Buffers buffers(c);
    std::vector<std::unique_ptr<Residual>> residuals;
    for (Tokens* tokens : calls) {
      residuals.push_back(std::make_unique<Residual>(c, *tokens));
    }
    for (size_t i = 0; i < std::size(calls); ++i) {
      RunBlock(ArgsOf(block, weights, *calls[i], buffers, *residuals[i]));
    }
    Finish();

    for (size_t i = 0; i < std::size(calls); ++i) {
      SCOPED_TRACE("call " + std::to_string(i));
      Buffers plain(c);
      Residual want(c, *calls[i]);
      RunSteps(ArgsOf(block, weights, *calls[i], plain, want));
      Finish();
      EXPECT_TRUE(SameBits(residuals[i]->out.Get(), want.out.Get()));
      EXPECT_EQ(residuals[i]->flag.Get(), want.flag.Get());
      if (i + 1 < std::size(calls)) continue;
      const int64_t slots = calls[i]->live * c.top_k;
      EXPECT_EQ(FirstOf(buffers.ids.Get(), slots),
                FirstOf(plain.ids.Get(), slots));
      EXPECT_TRUE(SameBits(FirstOf(buffers.weights.Get(), slots),
                           FirstOf(plain.weights.Get(), slots)));
    }
  }
}

}  // namespace
}  // namespace signet::backend::gpu
