// Patterns over launches of named buffers, of a shape of more rows than the
// fused products take: found, and not when one argument differs.

#include "exec/fuse.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <variant>
#include <vector>

namespace signet::exec {
namespace {

using Launches = std::vector<Launch>;

constexpr int64_t kWidth = 64;

// Buffers; nothing reads them.
enum Buffer {
  kX,
  kNormed,
  kRounded,
  kScores,
  kOut,
  kConv,
  kDelta,
  kZ,
  kGrouped,
  kGate,
  kUp,
  kAct,
  kDown,
  kShared,
  kPartial,
  kReduced,
  kFed,
  kMiddle,
  kResidual,
  kBuffers
};
float* At(Buffer buffer) {
  static std::array<float, kBuffers> memory = {};
  return &memory[buffer];
}

backend::Rows RowsOf(int64_t capacity = 64) { return {.capacity = capacity}; }

backend::NormArgs Norm() {
  return {.rows = RowsOf(), .x = At(kX), .width = kWidth, .out = At(kNormed)};
}
backend::RoundArgs Round(Buffer x) {
  return {.rows = RowsOf(), .width = kWidth, .x = At(x), .out = At(kRounded)};
}
// A residual add, a norm of its sum, and their round.
Launches AddedNorm() {
  backend::NormArgs norm = Norm();
  norm.x = At(kMiddle);
  return {backend::ResidualAddArgs{.rows = RowsOf(),
                                   .width = kWidth,
                                   .residual = At(kResidual),
                                   .addend = At(kOut),
                                   .out = At(kMiddle)},
          norm, Round(kNormed)};
}
backend::ProjectionArgs Product(Buffer x, Buffer out) {
  return {.rows = RowsOf(), .x = {.data = At(x)}, .out = At(out)};
}
backend::GatedNormArgs GatedNorm() {
  return {.rows = RowsOf(),
          .heads = 4,
          .head_dim = kWidth / 4,
          .o = At(kDelta),
          .z = At(kZ),
          .out = At(kNormed)};
}
Launches Mixer(backend::DeltaForm form) {
  return {
      backend::ConvArgs{.rows = RowsOf(), .out = At(kConv)},
      backend::DeltaRuleArgs{
          .rows = RowsOf(), .form = form, .qkv = At(kConv), .out = At(kDelta)},
      GatedNorm(), Round(kNormed)};
}
backend::UnscatterArgs Unscatter() {
  return {.rows = RowsOf(),
          .width = kWidth,
          .y = At(kGrouped),
          .gate = At(kGate),
          .up = At(kUp)};
}
backend::ActivationArgs Activation() {
  return {.rows = RowsOf(),
          .multiple = 8,
          .width = kWidth,
          .gate = At(kGate),
          .up = At(kUp),
          .rounded = At(kAct)};
}
// From combine to the residual.
Launches Tail() {
  return {backend::CombineArgs{.rows = RowsOf(),
                               .width = kWidth,
                               .d = At(kDown),
                               .out = At(kPartial)},
          backend::IdentityReduceArgs{.rows = RowsOf(),
                                      .width = kWidth,
                                      .x = At(kPartial),
                                      .out = At(kReduced)},
          backend::GatedAddArgs{.rows = RowsOf(),
                                .width = kWidth,
                                .addend = At(kReduced),
                                .gate = At(kScores),
                                .x = At(kShared),
                                .out = At(kFed)},
          backend::ResidualAddArgs{.rows = RowsOf(),
                                   .width = kWidth,
                                   .residual = At(kMiddle),
                                   .addend = At(kFed),
                                   .out = At(kResidual)}};
}

std::vector<FusedLaunch> FuseAll(const Launches& launches) {
  return Fuse(launches, [](size_t, size_t) { return true; });
}

// Whether no two of them became one.
bool StayApart(const Launches& launches) {
  return FuseAll(launches).size() == launches.size();
}

// The first launch, if it is one of `count` steps.
template <typename Args>
const Args* First(const std::vector<FusedLaunch>& fused, size_t count) {
  return !fused.empty() && fused[0].count == count
             ? std::get_if<Args>(&fused[0].launch)
             : nullptr;
}

template <typename Args>
Args& ArgsOf(Launch& launch) {
  return std::get<Args>(launch);
}

TEST(FuseTest, NormAndRound) {
  const auto fused = FuseAll({Norm(), Round(kNormed), Product(kRounded, kOut)});
  ASSERT_EQ(fused.size(), 2u);
  const auto* args = First<backend::NormRoundArgs>(fused, 2);
  ASSERT_NE(args, nullptr);
  EXPECT_EQ(args->norm.x, At(kX));
  EXPECT_EQ(args->round.out, At(kRounded));
  EXPECT_FALSE(args->keep_normed);
}

TEST(FuseTest, ANormThatIsReadAgainIsKept) {
  const auto kept = [](const Launches& rest) {
    Launches launches = {Norm(), Round(kNormed)};
    launches.insert(launches.end(), rest.begin(), rest.end());
    const auto fused = FuseAll(launches);
    const auto* args = First<backend::NormRoundArgs>(fused, 2);
    return args != nullptr && args->keep_normed;
  };
  // The router reads f32.
  EXPECT_TRUE(kept({Product(kNormed, kScores), Product(kRounded, kOut)}));
  EXPECT_TRUE(kept({Product(kRounded, kOut), Product(kNormed, kScores)}));
  EXPECT_TRUE(kept({backend::LogitsArgs{.x = {.data = At(kNormed)}}}));
  EXPECT_TRUE(kept({backend::GroupedGateUpArgs{.x = {.data = At(kNormed)}}}));
  EXPECT_TRUE(kept({backend::IndexedGateUpArgs{.x = At(kNormed)}}));
  EXPECT_TRUE(kept({Round(kNormed)}));
  // Another value of the same memory.
  EXPECT_FALSE(kept({Product(kRounded, kNormed), Product(kNormed, kOut)}));
  EXPECT_FALSE(kept({Norm(), Product(kNormed, kOut)}));
}

TEST(FuseTest, NormAndRoundOfOtherBuffers) {
  EXPECT_TRUE(StayApart({Norm(), Round(kX)}));
  EXPECT_TRUE(StayApart({Norm(), Product(kNormed, kScores), Round(kNormed)}));
  backend::RoundArgs round = Round(kNormed);
  round.multiple = 8;
  EXPECT_TRUE(StayApart({Norm(), round}));
  round = Round(kNormed);
  round.width = kWidth / 2;
  EXPECT_TRUE(StayApart({Norm(), round}));
}

TEST(FuseTest, AddNormAndRound) {
  const auto args_before = [](const Launch& next) {
    Launches launches = AddedNorm();
    launches.push_back(next);
    const auto fused = FuseAll(launches);
    EXPECT_EQ(fused.size(), 2u);
    const auto* args = First<backend::AddNormRoundArgs>(fused, 3);
    return args != nullptr ? *args : backend::AddNormRoundArgs();
  };
  const auto args = args_before(Product(kRounded, kScores));
  EXPECT_EQ(args.add.residual, At(kResidual));
  EXPECT_EQ(args.add.addend, At(kOut));
  EXPECT_EQ(args.norm.x, At(kMiddle));
  EXPECT_EQ(args.round.out, At(kRounded));
  EXPECT_FALSE(args.keep_normed);
  EXPECT_TRUE(args_before(Product(kNormed, kScores)).keep_normed);
}

TEST(FuseTest, AnAddThatTheNormDoesNotReadStaysApart) {
  // The norm and the round go together all the same.
  const auto without_add = [](const Launches& launches) {
    const auto fused = FuseAll(launches);
    return fused.size() == 2 && fused[0].count == 1 &&
           std::holds_alternative<backend::NormRoundArgs>(fused[1].launch);
  };
  Launches other = AddedNorm();
  ArgsOf<backend::NormArgs>(other[1]).x = At(kX);
  EXPECT_TRUE(without_add(other));
  other = AddedNorm();
  ArgsOf<backend::ResidualAddArgs>(other[0]).width = kWidth / 2;
  EXPECT_TRUE(without_add(other));

  other = AddedNorm();
  ArgsOf<backend::RoundArgs>(other[2]).x = At(kX);
  EXPECT_TRUE(StayApart(other));
  other = AddedNorm();
  other.pop_back();
  EXPECT_TRUE(StayApart(other));
}

// A tail, and the rounded norm of its sum.
Launches NormedTail() {
  Launches launches = Tail();
  auto& add = ArgsOf<backend::ResidualAddArgs>(launches.back());
  add.width = kWidth;
  launches.push_back(Norm());
  auto& norm = ArgsOf<backend::NormArgs>(launches.back());
  norm.x = At(kResidual);
  norm.rows = add.rows;
  launches.push_back(Round(kNormed));
  return launches;
}

TEST(FuseTest, CombineToTheNormOfTheResidual) {
  const auto fused = FuseAll(NormedTail());
  const auto* args = First<backend::CombineNormArgs>(fused, 6);
  ASSERT_NE(args, nullptr);
  EXPECT_EQ(args->tail.add.out, At(kResidual));
  EXPECT_EQ(args->norm.norm.x, At(kResidual));
  EXPECT_FALSE(args->norm.keep_normed);

  // Else the tail stays whole, and the norm with its round.
  const auto expect_apart = [](const Launches& launches) {
    const auto apart = FuseAll(launches);
    ASSERT_EQ(apart.size(), 2u);
    EXPECT_NE(First<backend::CombineTailArgs>(apart, 4), nullptr);
    EXPECT_TRUE(
        std::holds_alternative<backend::NormRoundArgs>(apart[1].launch));
  };
  Launches other = NormedTail();
  ArgsOf<backend::NormArgs>(other[4]).x = At(kX);
  expect_apart(other);
  other = NormedTail();
  ArgsOf<backend::ResidualAddArgs>(other[3]).width = kWidth / 2;
  expect_apart(other);
  other = NormedTail();
  ++ArgsOf<backend::NormArgs>(other[4]).rows.capacity;
  expect_apart(other);
  other = NormedTail();
  static const int32_t live = 0;
  ArgsOf<backend::NormArgs>(other[4]).rows.live = &live;
  expect_apart(other);
}

TEST(FuseTest, FewRowsAddWithTheirProduct) {
  backend::ProjectionArgs product = Product(kX, kOut);
  product.rows = RowsOf(8);
  Launches launches = {product};
  for (const Launch& launch : AddedNorm()) launches.push_back(launch);
  launches.back() = Product(kNormed, kScores);
  ArgsOf<backend::NormArgs>(launches[2]).rows = RowsOf(8);
  const auto fused = FuseAll(launches);
  ASSERT_EQ(fused.size(), 2u);
  EXPECT_NE(First<backend::ProductAddArgs>(fused, 2), nullptr);
  EXPECT_TRUE(
      std::holds_alternative<backend::NormProductsArgs>(fused[1].launch));
}

TEST(FuseTest, GatedNormAndRound) {
  const Launches launches = {GatedNorm(), Round(kNormed),
                             Product(kRounded, kOut)};
  const auto fused = FuseAll(launches);
  ASSERT_EQ(fused.size(), 2u);
  const auto* args = First<backend::GatedNormRoundArgs>(fused, 2);
  ASSERT_NE(args, nullptr);
  EXPECT_EQ(args->norm.z, At(kZ));
  EXPECT_EQ(args->round.out, At(kRounded));

  EXPECT_TRUE(StayApart({GatedNorm(), Round(kX)}));
  EXPECT_TRUE(StayApart({GatedNorm()}));
  // Something else reads what would not be written.
  EXPECT_TRUE(StayApart({GatedNorm(), Round(kNormed), Product(kNormed, kOut)}));
}

TEST(FuseTest, MixersOfTokensEndRounded) {
  const auto fused = FuseAll(Mixer(backend::DeltaForm::kRecurrent));
  const auto* args = First<backend::DeltaMixArgs>(fused, 4);
  ASSERT_NE(args, nullptr);
  EXPECT_TRUE(args->rounded);
  EXPECT_EQ(args->round.out, At(kRounded));

  Launches plain = Mixer(backend::DeltaForm::kRecurrent);
  ArgsOf<backend::RoundArgs>(plain[3]).x = At(kX);
  const auto apart = FuseAll(plain);
  ASSERT_EQ(apart.size(), 2u);
  const auto* mix = First<backend::DeltaMixArgs>(apart, 3);
  ASSERT_NE(mix, nullptr);
  EXPECT_FALSE(mix->rounded);

  plain.pop_back();
  EXPECT_NE(First<backend::DeltaMixArgs>(FuseAll(plain), 3), nullptr);
}

TEST(FuseTest, MixersOfChunksRoundWithTheirNorm) {
  const auto fused = FuseAll(Mixer(backend::DeltaForm::kChunked));
  ASSERT_EQ(fused.size(), 3u);
  EXPECT_TRUE(
      std::holds_alternative<backend::GatedNormRoundArgs>(fused[2].launch));
}

TEST(FuseTest, UnscatterAndActivation) {
  const auto fused = FuseAll({Unscatter(), Activation()});
  const auto* args = First<backend::UnscatterActivationArgs>(fused, 2);
  ASSERT_NE(args, nullptr);
  EXPECT_EQ(args->unscatter.y, At(kGrouped));
  EXPECT_EQ(args->activation.rounded, At(kAct));

  backend::ActivationArgs other = Activation();
  other.gate = At(kX);
  EXPECT_TRUE(StayApart({Unscatter(), other}));
  other = Activation();
  other.up = At(kX);
  EXPECT_TRUE(StayApart({Unscatter(), other}));
  other = Activation();
  other.width = kWidth / 2;
  EXPECT_TRUE(StayApart({Unscatter(), other}));
}

TEST(FuseTest, CombineToTheResidual) {
  const auto fused = FuseAll(Tail());
  const auto* args = First<backend::CombineTailArgs>(fused, 4);
  ASSERT_NE(args, nullptr);
  EXPECT_EQ(args->combine.d, At(kDown));
  EXPECT_EQ(args->gated.x, At(kShared));
  EXPECT_EQ(args->add.out, At(kResidual));

  Launches other = Tail();
  ArgsOf<backend::IdentityReduceArgs>(other[1]).x = At(kX);
  EXPECT_TRUE(StayApart(other));
  other = Tail();
  ArgsOf<backend::GatedAddArgs>(other[2]).addend = At(kX);
  EXPECT_TRUE(StayApart(other));
  other = Tail();
  ArgsOf<backend::ResidualAddArgs>(other[3]).addend = At(kX);
  EXPECT_TRUE(StayApart(other));
  // Ranks meet between them.
  other = Tail();
  other[1] = GroupReduce{.x = At(kPartial), .out = At(kReduced)};
  EXPECT_TRUE(StayApart(other));
}

TEST(FuseTest, FewRowsTakeTheWholeTail) {
  const auto tail = [](int64_t capacity, Buffer shared) {
    Launches launches = {
        backend::IndexedDownArgs{.rows = RowsOf(capacity), .out = At(kDown)},
        Product(kAct, shared)};
    for (const Launch& launch : Tail()) launches.push_back(launch);
    return FuseAll(launches);
  };
  EXPECT_NE(First<backend::MoeTailArgs>(tail(8, kShared), 6), nullptr);
  EXPECT_EQ(tail(9, kShared).size(), 3u);
  EXPECT_EQ(tail(8, kX).size(), 3u);
}

TEST(FuseTest, BuffersThatOverlapKeepStepsApart) {
  const auto fused = Fuse(Mixer(backend::DeltaForm::kRecurrent),
                          [](size_t, size_t count) { return count < 4; });
  ASSERT_EQ(fused.size(), 2u);
  EXPECT_NE(First<backend::DeltaMixArgs>(fused, 3), nullptr);
  const auto added = Fuse(AddedNorm(), [](size_t, size_t n) { return n < 3; });
  ASSERT_EQ(added.size(), 2u);
  EXPECT_EQ(added[0].count, 1u);
  const auto never = [](size_t, size_t) { return false; };
  EXPECT_EQ(Fuse(Tail(), never).size(), 4u);
}

}  // namespace
}  // namespace signet::exec
