// Sides that must be equal are, bit for bit, and what is not comparable is
// refused before anything is loaded (contract E1).

#include "evidence/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "evidence/report.h"
#include "evidence/verify_testing.h"
#include "support/running_model.h"

namespace signet::testing {
namespace {

using evidence::SideReport;
using evidence::Verify;
using evidence::VerifyReport;
using ::testing::HasSubstr;

constexpr int64_t kPositions = 30;

void ExpectEqualSides(const std::filesystem::path& model,
                      const std::vector<std::string>& meshes,
                      TpExperts experts = TpExperts::kSplit) {
  evidence::VerifyRequest request = RequestFor(model, meshes, kPositions);
  request.options.tp_experts = experts;
  const VerifyReport report = ValueOrDie(Verify(request));
  EXPECT_TRUE(report.holds()) << evidence::ReportText(report);
  const SideReport& first = report.sides.front();
  for (const SideReport& side : report.sides) {
    SCOPED_TRACE(side.request.mesh);
    EXPECT_EQ(side.num_faults, 0);
    ASSERT_EQ(side.digests.size(), static_cast<size_t>(kPositions));
    EXPECT_EQ(side.digests, first.digests);
    if (!side.tapped) continue;
    EXPECT_EQ(side.tapped->tokens_compared(), kPositions);
    EXPECT_EQ(side.tapped->tokens_equal(), kPositions);
    EXPECT_FALSE(side.different().has_value());
  }
}

TEST(Verify, E1_TheDemoIsEqualOnOneTwoFourAndEightRanks) {
  ExpectEqualSides(Demo(), {"single", "ep=2", "ep=4", "ep=8"});
}

TEST(Verify, E1_TwelveExpertsAreEqualOnOneTwoAndFourRanks) {
  ExpectEqualSides(Tiny("moe_awkward"), {"single", "ep=2", "ep=4"});
}

TEST(Verify, E1_GeneratedCheckpointsAreEqual) {
  ExpectEqualSides(Tiny("moe_fused_nested"), {"single", "ep=2", "ep=4"});
  ExpectEqualSides(Tiny("moe_per_expert_text"), {"ep=4", "single", "ep=8"});
  ExpectEqualSides(Tiny("moe_top1"), {"single", "ep=2"});
}

TEST(Verify, N5_PipelinesAreEqual) {
  ExpectEqualSides(Demo(), {"single", "pp=2", "pp=2,ep=2", "pp=4"});
  ExpectEqualSides(Tiny("moe_awkward"), {"single", "pp=3", "pp=2,ep=4"});
  ExpectEqualSides(Tiny("dense_r3"), {"single", "pp=2"});
}

TEST(Verify, N5_SidesOfAsManyTensorParallelRanksAreEqual) {
  ExpectEqualSides(Tiny("moe_fused_nested"), {"tp=2", "pp=2,tp=2"});
  ExpectEqualSides(Tiny("moe_fused_nested"), {"tp=2", "pp=4,tp=2"},
                   TpExperts::kOwned);
}

void ExpectWithinBounds(const std::filesystem::path& model,
                        const std::vector<std::string>& meshes) {
  for (const TpExperts experts : {TpExperts::kSplit, TpExperts::kOwned}) {
    evidence::VerifyRequest request = RequestFor(model, meshes, kPositions);
    request.options.tp_experts = experts;
    const VerifyReport report = ValueOrDie(Verify(request));
    EXPECT_TRUE(report.holds()) << evidence::ReportText(report);
    for (size_t i = 1; i < report.sides.size(); ++i) {
      const SideReport& side = report.sides[i];
      EXPECT_TRUE(side.bounds.has_value());
      EXPECT_EQ(side.num_faults, 0);
      // The sums do run in another order.
      EXPECT_TRUE(side.different().has_value());
      EXPECT_GT(side.tapped->relative().logits, 0);
      EXPECT_LT(side.tapped->relative().logits, 1e-2);
      EXPECT_EQ(side.tapped->tokens_compared(), kPositions);
    }
  }
}

TEST(Verify, N5_TensorParallelSidesAreWithinTheirBounds) {
  ExpectWithinBounds(Demo(), {"single", "tp=2", "pp=2,tp=2"});
  ExpectWithinBounds(Tiny("moe_four_kv"), {"single", "tp=2", "tp=4"});
  ExpectWithinBounds(Tiny("moe_per_expert_text"), {"ep=2", "tp=2"});
  ExpectWithinBounds(Tiny("dense_r3"), {"single", "tp=2"});
}

TEST(Verify, N5_EveryBoundIsCommittedOnce) {
  for (const plan::Parallelism experts :
       {plan::Parallelism::kSingle, plan::Parallelism::kOwned,
        plan::Parallelism::kSplit}) {
    EXPECT_TRUE(
        evidence::FindBounds("cpu", "cpu", experts, "bf16").has_value());
    EXPECT_EQ(evidence::FindBounds("cpu", "gpu", experts, "bf16").has_value(),
              experts == plan::Parallelism::kSingle);
    EXPECT_FALSE(evidence::FindBounds("gpu", "gpu", experts, "bf16"));
    EXPECT_FALSE(evidence::FindBounds("cpu", "cpu", experts, "f16"));
  }
}

TEST(Verify, E1_OneSideIsComparedWithItself) {
  ExpectEqualSides(Tiny("dense_r3"), {"single"});
  ExpectEqualSides(Tiny("dense_r3"), {"single", "single"});
}

TEST(Verify, E1_BFloat16StateIsComparedToo) {
  evidence::VerifyRequest request =
      RequestFor(Tiny("moe_top1"), {"single", "ep=2"}, kPositions);
  request.options.kv = KvType::kBF16;
  request.options.batch = 3;
  const VerifyReport report = ValueOrDie(Verify(request));
  EXPECT_TRUE(report.holds()) << evidence::ReportText(report);
}

TEST(Verify, X3_TheSlotsOfTheRanksAddUp) {
  const VerifyReport report =
      ValueOrDie(Verify(RequestFor(Demo(), {"single", "ep=4"}, kPositions)));
  ASSERT_EQ(report.sides.size(), 2u);
  const std::vector<int64_t>& slots = report.sides[1].rank_slots;
  ASSERT_EQ(slots.size(), 4u);
  // Layers times positions times K.
  EXPECT_EQ(std::accumulate(slots.begin(), slots.end(), int64_t{0}),
            8 * kPositions * 4);
  EXPECT_EQ(report.sides[0].rank_slots,
            std::vector<int64_t>{8 * kPositions * 4});
  for (const int64_t of_rank : slots) EXPECT_GT(of_rank, 0);
}

TEST(Verify, M4_ASmallerMeshTakesTheFirstDevices) {
  evidence::VerifyRequest request =
      RequestFor(Tiny("moe_top1"), {"single", "ep=2", "single"}, 22);
  request.options.devices = "cpu:5,cpu:3";
  request.sides[2].devices = "cpu:7";
  const VerifyReport report = ValueOrDie(Verify(request));
  EXPECT_EQ(report.sides[0].devices[0].ordinal, 5);
  EXPECT_EQ(report.sides[1].devices[1].ordinal, 3);
  EXPECT_EQ(report.sides[2].devices[0].ordinal, 7);
  EXPECT_FALSE(report.sides[0].emulated);
  EXPECT_TRUE(report.sides[1].emulated);
}

TEST(Verify, TheFixedPromptIsUsedAndKept) {
  evidence::VerifyRequest request = RequestFor(Demo(), {"single"}, 9);
  request.prompt.reset();
  const VerifyReport report = ValueOrDie(Verify(request));
  EXPECT_EQ(report.prompt_text, evidence::kDefaultPrompt);
  EXPECT_EQ(report.prompt.size(), 9u);
  EXPECT_EQ(report.drawn.size(), 1u);
  EXPECT_THAT(evidence::ReportText(report), HasSubstr("Alice was beginning"));
}

bool IsRefused(const evidence::VerifyRequest& request, RejectionCode code) {
  const auto report = Verify(request);
  return !report && std::holds_alternative<Rejections>(report.error()) &&
         std::get<Rejections>(report.error()).Has(code);
}

TEST(Verify, RefusesWhatCannotBeCompared) {
  const auto request = [](std::vector<std::string> meshes) {
    return RequestFor(Tiny("moe_awkward"), meshes, kPositions);
  };
  EXPECT_TRUE(IsRefused(request({"single", "ep=8"}),
                        RejectionCode::kExpertsIndivisible));
  EXPECT_TRUE(
      IsRefused(request({"single", "ep=x"}), RejectionCode::kMeshUnparsable));
  evidence::VerifyRequest wrong = request({"single", "ep=2"});
  wrong.options.devices = "cpu:0,cpu:1,cpu:2";
  EXPECT_TRUE(IsRefused(wrong, RejectionCode::kDevicesInvalid));
  wrong.options.devices = "cpu:0,cpu:0";
  EXPECT_TRUE(IsRefused(wrong, RejectionCode::kDeviceRepeated));
  wrong = request({"single"});
  wrong.positions = 20;
  EXPECT_TRUE(IsRefused(wrong, RejectionCode::kPromptTooLong));
  wrong.positions = 257;
  EXPECT_TRUE(IsRefused(wrong, RejectionCode::kPromptTooLong));
  wrong = request({"single"});
  wrong.prompt = std::vector<int32_t>{1, 1 << 20};
  EXPECT_TRUE(IsRefused(wrong, RejectionCode::kRequestInvalid));
  wrong.model = "/nowhere";
  EXPECT_TRUE(IsRefused(wrong, RejectionCode::kSourceNotFound));
}

}  // namespace
}  // namespace signet::testing
