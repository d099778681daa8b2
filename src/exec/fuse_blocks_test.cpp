// The patterns that take more than a few launches: products of one rounded
// input, and the routed block. Found, and not when one argument differs.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <variant>
#include <vector>

#include "exec/fuse.h"

namespace signet::exec {
namespace {

using Launches = std::vector<Launch>;
using tensor::DType;

constexpr int64_t kWidth = 64;
constexpr int64_t kTopK = 8;

// Buffers; nothing reads them.
enum Buffer {
  kX,
  kNormed,
  kRounded,
  kScores,
  kSharedGate,
  kGate,
  kUp,
  kSharedAct,
  kExpertGate,
  kExpertUp,
  kAct,
  kDown,
  kShared,
  kPartial,
  kReduced,
  kFed,
  kResidual,
  kOther,
  kBuffers
};
float* At(Buffer buffer) {
  static std::array<float, kBuffers> memory = {};
  return &memory[buffer];
}
// Each product has an output of its own.
float* OutOf(size_t product) {
  static std::array<float, 16> memory = {};
  return &memory[product];
}
int32_t* IdsOf(size_t route) {
  static std::array<int32_t, 2> memory = {};
  return &memory[route];
}
float* WeightsOf(size_t route) {
  static std::array<float, 2> memory = {};
  return &memory[route];
}

backend::Rows RowsOf(int64_t capacity) { return {.capacity = capacity}; }

std::vector<FusedLaunch> FuseAll(const Launches& launches) {
  return Fuse(launches, [](size_t, size_t) { return true; });
}

template <typename Args>
size_t CountOf(const std::vector<FusedLaunch>& fused) {
  return static_cast<size_t>(
      std::count_if(fused.begin(), fused.end(), [](const FusedLaunch& f) {
        return std::holds_alternative<Args>(f.launch);
      }));
}

backend::ProjectionArgs Product(Buffer x, float* out,
                                DType dtype = DType::kBF16) {
  return {.rows = RowsOf(64), .x = {.data = At(x), .dtype = dtype}, .out = out};
}
Launches Products(size_t count) {
  Launches launches;
  for (size_t p = 0; p < count; ++p) {
    launches.emplace_back(Product(kRounded, OutOf(p)));
  }
  return launches;
}

TEST(FuseRoundedProductsTest, AllOfOneInput) {
  for (size_t count = 2; count <= backend::kMaxFusedProducts; ++count) {
    SCOPED_TRACE(count);
    Launches launches = Products(count);
    launches.emplace_back(backend::ResidualAddArgs{.addend = At(kOther)});
    const auto fused = FuseAll(launches);
    ASSERT_EQ(fused.size(), 2u);
    EXPECT_EQ(fused[0].count, count);
    const auto* args =
        std::get_if<backend::RoundedProductsArgs>(&fused[0].launch);
    ASSERT_NE(args, nullptr);
    ASSERT_EQ(args->num_products, static_cast<int>(count));
    for (size_t p = 0; p < count; ++p) {
      EXPECT_EQ(args->products[p].x.data, At(kRounded));
      EXPECT_EQ(args->products[p].out, OutOf(p));
    }
  }
}

TEST(FuseRoundedProductsTest, ALongRunIsCut) {
  constexpr auto kMost = static_cast<size_t>(backend::kMaxFusedProducts);
  // The one left over stays alone, two become a launch of their own.
  for (size_t more : {1u, 2u}) {
    SCOPED_TRACE(more);
    const auto fused = FuseAll(Products(kMost + more));
    ASSERT_EQ(fused.size(), 2u);
    EXPECT_EQ(fused[0].count, kMost);
    EXPECT_EQ(fused[1].count, more);
    EXPECT_EQ(CountOf<backend::RoundedProductsArgs>(fused), more);
    if (more == 1) {
      const auto* last = std::get_if<backend::ProjectionArgs>(&fused[1].launch);
      ASSERT_NE(last, nullptr);
      EXPECT_EQ(last->out, OutOf(kMost));
    }
  }
}

TEST(FuseRoundedProductsTest, NotOneAlone) {
  const auto fused = FuseAll(Products(1));
  ASSERT_EQ(fused.size(), 1u);
  EXPECT_NE(std::get_if<backend::ProjectionArgs>(&fused[0].launch), nullptr);
}

TEST(FuseRoundedProductsTest, NotOfFloatsOrOfAnotherInput) {
  const auto stay_apart = [](const Launches& launches) {
    return FuseAll(launches).size() == launches.size();
  };
  EXPECT_TRUE(stay_apart({Product(kNormed, OutOf(0), DType::kF32),
                          Product(kNormed, OutOf(1), DType::kF32)}));
  EXPECT_TRUE(stay_apart(
      {Product(kRounded, OutOf(0)), Product(kRounded, OutOf(1), DType::kF32)}));
  EXPECT_TRUE(stay_apart({Product(kRounded, OutOf(0)), Product(kX, OutOf(1)),
                          Product(kRounded, OutOf(2))}));
  EXPECT_TRUE(stay_apart({Product(kRounded, OutOf(0)),
                          backend::RoundArgs{.out = At(kOther)},
                          Product(kRounded, OutOf(1))}));

  // The run before it goes together all the same.
  Launches launches = Products(3);
  launches.emplace_back(Product(kX, OutOf(3)));
  const auto fused = FuseAll(launches);
  ASSERT_EQ(fused.size(), 2u);
  EXPECT_EQ(fused[0].count, 3u);
  EXPECT_EQ(CountOf<backend::RoundedProductsArgs>(fused), 1u);
}

TEST(FuseRoundedProductsTest, NotWhereBuffersOverlap) {
  EXPECT_EQ(Fuse(Products(3), [](size_t, size_t) { return false; }).size(), 3u);
}

// The steps of a routed block, in order.
enum Step : size_t {
  kNormStep,
  kScoresStep,
  kSharedGateStep,
  kGateStep,
  kUpStep,
  kActivationStep,
  kRouteStep,
  kGateUpStep,
  kExpertActivationStep,
  kDownStep,
  kSharedDownStep,
  kCombineStep,
  kReduceStep,
  kGatedStep,
  kAddStep,
  kSteps
};

Launches Block(int64_t capacity) {
  const backend::Rows rows = RowsOf(capacity);
  const auto product = [&](Buffer x, Buffer out) {
    return backend::ProjectionArgs{
        .rows = rows, .x = {.data = At(x)}, .out = At(out)};
  };
  return {backend::NormArgs{
              .rows = rows, .x = At(kX), .width = kWidth, .out = At(kNormed)},
          product(kNormed, kScores),
          product(kNormed, kSharedGate),
          product(kNormed, kGate),
          product(kNormed, kUp),
          backend::ActivationArgs{.rows = rows,
                                  .multiple = 1,
                                  .width = kWidth,
                                  .gate = At(kGate),
                                  .up = At(kUp),
                                  .out = At(kSharedAct)},
          backend::RouteArgs{.rows = rows,
                             .top_k = kTopK,
                             .scores = At(kScores),
                             .ids = IdsOf(0),
                             .weights = WeightsOf(0)},
          backend::IndexedGateUpArgs{.rows = rows,
                                     .top_k = kTopK,
                                     .ids = IdsOf(0),
                                     .x = At(kNormed),
                                     .gate = At(kExpertGate),
                                     .up = At(kExpertUp)},
          backend::ActivationArgs{.rows = rows,
                                  .multiple = kTopK,
                                  .width = kWidth,
                                  .gate = At(kExpertGate),
                                  .up = At(kExpertUp),
                                  .out = At(kAct)},
          backend::IndexedDownArgs{.rows = rows,
                                   .top_k = kTopK,
                                   .ids = IdsOf(0),
                                   .act = At(kAct),
                                   .out = At(kDown)},
          product(kSharedAct, kShared),
          backend::CombineArgs{.rows = rows,
                               .top_k = kTopK,
                               .width = kWidth,
                               .ids = IdsOf(0),
                               .weights = WeightsOf(0),
                               .d = At(kDown),
                               .out = At(kPartial)},
          backend::IdentityReduceArgs{.rows = rows,
                                      .width = kWidth,
                                      .x = At(kPartial),
                                      .out = At(kReduced)},
          backend::GatedAddArgs{.rows = rows,
                                .width = kWidth,
                                .addend = At(kReduced),
                                .gate = At(kSharedGate),
                                .x = At(kShared),
                                .out = At(kFed)},
          backend::ResidualAddArgs{.rows = rows,
                                   .width = kWidth,
                                   .residual = At(kX),
                                   .addend = At(kFed),
                                   .out = At(kResidual)}};
}

using Change = std::function<void(Launches&)>;

// Whether the block is one launch after `change`.
bool IsOneAfter(const Change& change) {
  Launches launches = Block(1);
  change(launches);
  return CountOf<backend::MoeBlockArgs>(FuseAll(launches)) != 0;
}

TEST(FuseMoeBlockTest, FromTheNormToTheResidual) {
  for (int64_t capacity : {1, 8}) {
    SCOPED_TRACE(capacity);
    const Launches launches = Block(capacity);
    ASSERT_EQ(launches.size(), static_cast<size_t>(kSteps));
    const auto fused = FuseAll(launches);
    ASSERT_EQ(fused.size(), 1u);
    EXPECT_EQ(fused[0].count, launches.size());
    const auto* block = std::get_if<backend::MoeBlockArgs>(&fused[0].launch);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(block->products.norm.x, At(kX));
    EXPECT_EQ(block->products.num_products, 4);
    EXPECT_TRUE(block->products.activated);
    EXPECT_EQ(block->products.activation.out, At(kSharedAct));
    // The experts read it.
    EXPECT_TRUE(block->products.keep_normed);
    EXPECT_EQ(block->experts.route.scores, At(kScores));
    EXPECT_EQ(block->experts.activation.out, At(kAct));
    EXPECT_EQ(block->tail.down.act, At(kAct));
    EXPECT_EQ(block->tail.shared_down.x.data, At(kSharedAct));
    EXPECT_EQ(block->tail.gated.gate, At(kSharedGate));
    EXPECT_EQ(block->tail.add.out, At(kResidual));
  }
}

TEST(FuseMoeBlockTest, AloneAmongWhatStandsBesideIt) {
  Launches launches = {backend::ResidualAddArgs{.addend = At(kOther)}};
  for (int i = 0; i < 2; ++i) {
    for (const Launch& launch : Block(1)) launches.push_back(launch);
  }
  launches.emplace_back(backend::NormArgs{.x = At(kResidual)});
  const auto fused = FuseAll(launches);
  ASSERT_EQ(fused.size(), 4u);
  EXPECT_EQ(CountOf<backend::MoeBlockArgs>(fused), 2u);
}

TEST(FuseMoeBlockTest, NotOfManyRows) {
  EXPECT_EQ(CountOf<backend::MoeBlockArgs>(FuseAll(Block(9))), 0u);
}

TEST(FuseMoeBlockTest, ItsPartsRemainWhereBuffersOverlap) {
  const auto fused = Fuse(Block(1), [](size_t, size_t count) {
    return count < static_cast<size_t>(kSteps);
  });
  ASSERT_EQ(fused.size(), 3u);
  EXPECT_EQ(CountOf<backend::NormProductsArgs>(fused), 1u);
  EXPECT_EQ(CountOf<backend::RouteGateUpArgs>(fused), 1u);
  EXPECT_EQ(CountOf<backend::MoeTailArgs>(fused), 1u);
}

TEST(FuseMoeBlockTest, NotOfOtherBuffers) {
  ASSERT_TRUE(IsOneAfter([](Launches&) {}));
  const std::pair<const char*, Change> changes[] = {
      {"scores",
       [](Launches& l) {
         std::get<backend::RouteArgs>(l[kRouteStep]).scores = At(kOther);
       }},
      {"x of gate and up",
       [](Launches& l) {
         std::get<backend::IndexedGateUpArgs>(l[kGateUpStep]).x = At(kX);
       }},
      {"ids of gate and up",
       [](Launches& l) {
         std::get<backend::IndexedGateUpArgs>(l[kGateUpStep]).ids = IdsOf(1);
       }},
      {"ids of down",
       [](Launches& l) {
         std::get<backend::IndexedDownArgs>(l[kDownStep]).ids = IdsOf(1);
       }},
      {"ids of the tail",
       [](Launches& l) {
         std::get<backend::CombineArgs>(l[kCombineStep]).ids = IdsOf(1);
       }},
      {"weights of the tail",
       [](Launches& l) {
         std::get<backend::CombineArgs>(l[kCombineStep]).weights = WeightsOf(1);
       }},
      {"input of down",
       [](Launches& l) {
         std::get<backend::IndexedDownArgs>(l[kDownStep]).act = At(kOther);
       }},
      {"what combine takes",
       [](Launches& l) {
         std::get<backend::CombineArgs>(l[kCombineStep]).d = At(kOther);
       }},
      {"what the residual takes", [](Launches& l) {
         std::get<backend::ResidualAddArgs>(l[kAddStep]).addend = At(kOther);
       }}};
  for (const auto& [name, change] : changes) {
    EXPECT_FALSE(IsOneAfter(change)) << name;
  }
}

TEST(FuseMoeBlockTest, NotOfOtherSteps) {
  const auto without = [](Step step) {
    return [step](Launches& l) {
      l.erase(l.begin() + static_cast<std::ptrdiff_t>(step));
    };
  };
  for (const Step step : {kNormStep, kScoresStep, kRouteStep, kGateUpStep,
                          kExpertActivationStep, kDownStep, kSharedDownStep,
                          kCombineStep, kReduceStep, kGatedStep, kAddStep}) {
    EXPECT_FALSE(IsOneAfter(without(step))) << "without step " << step;
  }
  // The tail does not follow the experts.
  EXPECT_FALSE(IsOneAfter([](Launches& l) {
    l.insert(l.begin() + static_cast<std::ptrdiff_t>(kDownStep),
             backend::RoundArgs{.out = At(kOther)});
  }));
  // Ranks meet within it.
  EXPECT_FALSE(IsOneAfter([](Launches& l) {
    l[kReduceStep] = GroupReduce{.x = At(kPartial), .out = At(kReduced)};
  }));
  // Without a shared activation of its own it is one still.
  EXPECT_TRUE(IsOneAfter(without(kActivationStep)));
}

}  // namespace
}  // namespace signet::exec
