// One routed block, planned, sealed, bound and run alone: against its
// definition in fp64, in both grammars, with every kind of routing.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "exec/block_reference.h"
#include "exec/exec_testing.h"
#include "support/running_model.h"

namespace signet::testing {
namespace {

using plan::ShapeKind;
using step::RouterKind;

// fp32 sums of up to 96 terms; measured 4e-7 at most.
constexpr double kBound = 2e-6;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// What one checkpoint's blocks run on.
class BlockModel {
 public:
  BlockModel(int experts, int top_k)
      : experts_(experts),
        top_k_(top_k),
        reference_(LoadOracleModel(MoeCheckpoint(experts, top_k).string())),
        model_(MoeCheckpoint(experts, top_k), {.context = 64}, nullptr) {}

  RunningBlock Decode(int64_t rows,
                      RouterKind router = RouterKind::kPrecomputed) {
    return {&model_, {.kind = ShapeKind::kDecode, .rows = rows}, router};
  }
  RunningBlock Prefill(int64_t rows,
                       RouterKind router = RouterKind::kPrecomputed) {
    return {&model_, {.kind = ShapeKind::kPrefill, .rows = rows}, router};
  }
  /// Calls `body` with a block of each grammar.
  template <typename Body>
  void InBothGrammars(RouterKind router, Body body) {
    RunningBlock indexed = Decode(4, router);
    body(indexed);
    RunningBlock grouped = Prefill(16, router);
    body(grouped);
  }
  BlockCall Rows(int64_t live, uint64_t seed) const {
    return RoutedRows(live, hidden(), experts_, top_k_, seed);
  }
  /// Rows whose token t goes to `ids(t, k)`.
  template <typename Ids>
  BlockCall RowsTo(int64_t live, Ids ids) const {
    BlockCall call = Rows(live, 29);
    for (int64_t s = 0; s < live * top_k_; ++s) {
      call.ids[static_cast<size_t>(s)] =
          static_cast<int32_t>(ids(s / top_k_, s % top_k_));
    }
    return call;
  }
  double ErrorOf(RunningBlock& block, const BlockCall& call) const {
    return WorstRow(ValueOrDie(block.Run(call.inputs())),
                    NaiveBlock(reference_, call), hidden());
  }
  const OracleModel& reference() const { return reference_; }
  int64_t hidden() const { return reference_.config.hidden; }

 private:
  int experts_;
  int top_k_;
  OracleModel reference_;
  RunningModel model_;
};

void ExpectSameBits(const std::vector<float>& got,
                    const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)),
            0);
}

TEST(RoutedBlock, G2_PrecomputedRoutesGiveTheBlockOfTheDefinition) {
  BlockModel model(8, 2);
  for (const int64_t rows : {1, 2, 4, 8}) {
    RunningBlock block = model.Decode(rows);
    EXPECT_LE(model.ErrorOf(block, model.Rows(rows, 1)), kBound) << rows;
  }
  for (const int64_t rows : {1, 7, 40}) {
    RunningBlock block = model.Prefill(rows);
    EXPECT_LE(model.ErrorOf(block, model.Rows(rows, 2)), kBound) << rows;
  }
}

TEST(RoutedBlock, G3_IndexedAndGroupedGiveTheSameBits) {
  BlockModel model(8, 2);
  const BlockCall call = model.Rows(4, 3);
  RunningBlock indexed = model.Decode(4);
  const std::vector<float> want = ValueOrDie(indexed.Run(call.inputs()));
  RunningBlock grouped = model.Prefill(4);
  RunningBlock wide_decode = model.Decode(8);
  RunningBlock wide_prefill = model.Prefill(32);
  // They are not one program under four names.
  ASSERT_NE(indexed.program().launches().size(),
            grouped.program().launches().size());
  for (RunningBlock* block : {&grouped, &wide_decode, &wide_prefill}) {
    ExpectSameBits(ValueOrDie(block->Run(call.inputs())), want);
  }
}

TEST(RoutedBlock, N4_ARowsResultDoesNotDependOnTheOtherRows) {
  BlockModel model(8, 2);
  const BlockCall call = model.Rows(24, 4);
  RunningBlock block = model.Prefill(24);
  const std::vector<float> all = ValueOrDie(block.Run(call.inputs()));
  RunningBlock alone = model.Decode(1);
  const auto hidden = model.hidden();
  for (int64_t t = 0; t < call.live; ++t) {
    const BlockCall row = {
        .live = 1,
        .x = {&call.x[static_cast<size_t>(t * hidden)],
              &call.x[static_cast<size_t>(t * hidden)] + hidden},
        .ids = {call.ids.begin() + 2 * t, call.ids.begin() + 2 * t + 2},
        .weights = {call.weights.begin() + 2 * t,
                    call.weights.begin() + 2 * t + 2}};
    ExpectSameBits(ValueOrDie(alone.Run(row.inputs())),
                   {all.begin() + t * hidden, all.begin() + (t + 1) * hidden});
  }
}

TEST(RoutedBlock, P5_EveryTokenMayGoToOneExpert) {
  BlockModel model(8, 1);
  for (const int expert : {0, 7}) {
    const BlockCall call =
        model.RowsTo(33, [&](int64_t, int64_t) { return expert; });
    RunningBlock block = model.Prefill(33);
    EXPECT_LE(model.ErrorOf(block, call), kBound);
  }
}

TEST(RoutedBlock, P5_EachExpertMayGetOneSlot) {
  BlockModel model(8, 2);
  const BlockCall call =
      model.RowsTo(4, [](int64_t t, int64_t k) { return (2 * t + k) * 3 % 8; });
  RunningBlock grouped = model.Prefill(4);
  EXPECT_LE(model.ErrorOf(grouped, call), kBound);
  RunningBlock indexed = model.Decode(4);
  EXPECT_LE(model.ErrorOf(indexed, call), kBound);
}

TEST(RoutedBlock, P5_SingletonsBesideOneHeavyExpertFit) {
  BlockModel model(8, 1);
  const BlockCall call = model.RowsTo(
      40, [](int64_t t, int64_t) { return std::min<int64_t>(t, 7); });
  RunningBlock block = model.Prefill(40);
  EXPECT_LE(model.ErrorOf(block, call), kBound);
}

TEST(RoutedBlock, P5_ATokenMayGoToEveryExpert) {
  BlockModel model(4, 4);
  const BlockCall call = model.Rows(11, 6);
  RunningBlock grouped = model.Prefill(11);
  EXPECT_LE(model.ErrorOf(grouped, call), kBound);
  RunningBlock indexed = model.Decode(1);
  EXPECT_LE(model.ErrorOf(indexed, model.Rows(1, 7)), kBound);
}

TEST(RoutedBlock, G2_SoftmaxRouterChoosesAsTheDefinition) {
  BlockModel model(8, 2);
  const BlockCall rows = BlockRows(4, model.hidden(), 8);
  BlockCall routed = rows;
  RouteNaively(model.reference(), &routed);
  const std::vector<double> want = NaiveBlock(model.reference(), routed);
  model.InBothGrammars(RouterKind::kSoftmaxTopK, [&](RunningBlock& block) {
    const std::vector<float> got = ValueOrDie(block.Run(rows.inputs()));
    EXPECT_LE(WorstRow(got, want, model.hidden()), kBound);
  });
}

TEST(RoutedBlock, G5_NoLiveRowsIsACallThatDoesNothing) {
  BlockModel model(8, 2);
  model.InBothGrammars(RouterKind::kPrecomputed, [](RunningBlock& block) {
    block.arenas().Fill(MemoryClass::kIo, std::byte{0xFF});
    EXPECT_EQ(ValueOrDie(block.Run({.live = 0})).size(), 0u);
    EXPECT_TRUE(std::isnan(block.program().io().block_output[0]));
  });
}

TEST(RoutedBlock, G5_RowsPastTheLiveOnesAreInert) {
  BlockModel model(8, 2);
  const BlockCall few = model.Rows(3, 9);
  const BlockCall bad =
      model.RowsTo(16, [](int64_t t, int64_t k) { return t < 3 ? k : 99; });
  RunningBlock exact = model.Prefill(3);
  const std::vector<float> want = ValueOrDie(exact.Run(few.inputs()));
  model.InBothGrammars(RouterKind::kPrecomputed, [&](RunningBlock& block) {
    // What an earlier call left past the live rows must raise no flag.
    BlockCall leftover = bad;
    leftover.live = block.program().shape().rows;
    leftover.x.resize(static_cast<size_t>(leftover.live * model.hidden()));
    leftover.ids.resize(static_cast<size_t>(leftover.live * 2));
    leftover.weights.resize(leftover.ids.size());
    ASSERT_FALSE(block.Run(leftover.inputs()).has_value());
    block.arenas().Fill(MemoryClass::kWorkspace, std::byte{0xFF});
    ExpectSameBits(ValueOrDie(block.Run(few.inputs())), want);
  });
}

TEST(RoutedBlock, X4_PoisonedArenasNeverShow) {
  BlockModel model(8, 2);
  const BlockCall call = model.Rows(3, 10);
  model.InBothGrammars(RouterKind::kPrecomputed, [&](RunningBlock& block) {
    const std::vector<float> clean = ValueOrDie(block.Run(call.inputs()));
    for (const MemoryClass memory_class : kAllMemoryClasses) {
      block.arenas().Fill(memory_class, std::byte{0xFF});
    }
    ExpectSameBits(ValueOrDie(block.Run(call.inputs())), clean);
  });
}

class BlockError : public ::testing::Test {
 protected:
  // A call that fails, between two that do not, in both grammars.
  void ExpectNumericFailure(RouterKind router, const BlockCall& good,
                            const BlockCall& bad) {
    model_.InBothGrammars(router, [&](RunningBlock& block) {
      const std::vector<float> want = ValueOrDie(block.Run(good.inputs()));
      const auto failed = block.Run(bad.inputs());
      ASSERT_FALSE(failed.has_value());
      EXPECT_TRUE(FailsWith(failed.error(), FailureKind::kNumeric));
      // The flag is of the call; nothing of it is left for the next.
      ExpectSameBits(ValueOrDie(block.Run(good.inputs())), want);
    });
  }

  // `change` spoils row 1 of 3; the others stay sound.
  template <typename Change>
  void ExpectRouteRefused(Change change) {
    const BlockCall good = model_.Rows(3, 11);
    BlockCall bad = good;
    change(bad);
    ExpectNumericFailure(RouterKind::kPrecomputed, good, bad);
  }

  BlockModel model_{8, 2};
};

TEST_F(BlockError, N6_RepeatedIdIsRaised) {
  ExpectRouteRefused([](BlockCall& call) { call.ids[3] = call.ids[2]; });
}

TEST_F(BlockError, N6_IdPastTheExpertsIsRaised) {
  ExpectRouteRefused([](BlockCall& call) { call.ids[2] = 8; });
  ExpectRouteRefused([](BlockCall& call) {
    call.ids[3] = std::numeric_limits<int32_t>::max();
  });
}

TEST_F(BlockError, N6_NegativeIdIsRaised) {
  ExpectRouteRefused([](BlockCall& call) { call.ids[2] = -1; });
  ExpectRouteRefused([](BlockCall& call) {
    call.ids[3] = std::numeric_limits<int32_t>::min();
  });
}

TEST_F(BlockError, N6_NonFiniteWeightIsRaised) {
  ExpectRouteRefused([](BlockCall& call) { call.weights[2] = kNaN; });
  ExpectRouteRefused([](BlockCall& call) { call.weights[3] = INFINITY; });
}

TEST_F(BlockError, N6_NonFiniteRouterScoresAreRaised) {
  const BlockCall good = BlockRows(3, model_.hidden(), 12);
  BlockCall bad = good;
  bad.x[static_cast<size_t>(model_.hidden()) + 5] = kNaN;
  ExpectNumericFailure(RouterKind::kSoftmaxTopK, good, bad);
}

}  // namespace
}  // namespace signet::testing
