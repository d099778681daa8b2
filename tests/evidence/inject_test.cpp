// E3: a comparison that cannot fail proves nothing. Every fault is found, each
// by the rule that is there for it.

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "evidence/report.h"
#include "evidence/verify.h"
#include "evidence/verify_testing.h"
#include "support/running_model.h"

namespace signet::testing {
namespace {

using evidence::Fault;
using evidence::Place;
using evidence::What;

struct Expected {
  Fault fault;
  /// Unset: the comparison is red.
  std::optional<RejectionCode> code;
  std::string why;
};

// One row a fault: nothing is injected without an expectation.
const Expected kExpected[] = {
    {Fault::kWrongToken, std::nullopt, "E1"},
    {Fault::kFlipBasis, RejectionCode::kOperandBasis, "S2"},
    {Fault::kSwapExperts, std::nullopt, "E1"},
    {Fault::kDropReduce, RejectionCode::kCollectiveMissing, "S1"},
    // The recipe finds it before the dataflow would.
    {Fault::kDoubleResidual, RejectionCode::kWeightRecipe, "S2"},
    {Fault::kStaleEpoch, RejectionCode::kEpochStale, "M3, S6"},
    {Fault::kPermuteRanks, RejectionCode::kGroupMismatch, "S6"},
    {Fault::kDuplicateDevice, RejectionCode::kDeviceRepeated, "M4"},
    {Fault::kOtherK, RejectionCode::kProgramHeaderMismatch, "F2"},
};

class Inject : public ::testing::TestWithParam<Expected> {};

void ExpectFound(const Expected& expected, const std::filesystem::path& model,
                 const char* mesh) {
  SCOPED_TRACE(model.string() + " " + mesh);
  evidence::VerifyRequest request = RequestFor(model, {"single", mesh}, 24);
  request.fault = expected.fault;
  const auto report = evidence::Verify(request);
  if (!expected.code) {
    ASSERT_TRUE(report.has_value()) << Describe(report.error());
    EXPECT_FALSE(report->holds());
    EXPECT_TRUE(report->sides[0].holds());
    EXPECT_FALSE(report->sides[1].holds());
    return;
  }
  ASSERT_FALSE(report.has_value());
  ASSERT_TRUE(std::holds_alternative<Rejections>(report.error()));
  EXPECT_TRUE(std::get<Rejections>(report.error()).Has(*expected.code))
      << Describe(report.error());
}

TEST_P(Inject, E3_IsFound) {
  ExpectFound(GetParam(), Demo(), "ep=2");
  ExpectFound(GetParam(), Tiny("moe_awkward"), "ep=4");
  ExpectFound(GetParam(), Tiny("moe_per_expert_text"), "ep=2");
}

TEST_P(Inject, E3_IsFoundOnOtherMeshes) {
  ExpectFound(GetParam(), Tiny("moe_fused_nested"), "tp=2");
  ExpectFound(GetParam(), Tiny("moe_fused_nested"), "pp=2");
  ExpectFound(GetParam(), Tiny("moe_four_kv"), "pp=2,tp=2");
}

INSTANTIATE_TEST_SUITE_P(Faults, Inject, ::testing::ValuesIn(kExpected),
                         [](const auto& info) {
                           std::string name(Name(info.param.fault));
                           std::erase(name, '-');
                           return name;
                         });

TEST(Inject, E3_EveryFaultHasAnExpectation) {
  ASSERT_EQ(std::size(kExpected), evidence::kAllFaults.size());
  for (size_t i = 0; i < std::size(kExpected); ++i) {
    EXPECT_EQ(kExpected[i].fault, evidence::kAllFaults[i]);
    EXPECT_EQ(evidence::ParseFault(Name(kExpected[i].fault)),
              kExpected[i].fault);
  }
  EXPECT_EQ(evidence::ParseFault("gremlins"), std::nullopt);
}

TEST(Inject, E3_AFaultShowsWhereItWasMade) {
  evidence::VerifyRequest request = RequestFor(Demo(), {"single", "ep=2"}, 24);
  request.fault = Fault::kWrongToken;
  const auto report = ValueOrDie(evidence::Verify(request));
  // The middle id of a prompt of 21.
  ASSERT_TRUE(report.sides[1].different().has_value());
  EXPECT_EQ(report.sides[1].different()->position, 10);
  EXPECT_EQ(report.sides[1].different()->layer, 0);
}

TEST(Inject, E3_WrongWeightsShowInTheirLayer) {
  evidence::VerifyRequest request = RequestFor(Demo(), {"single", "ep=4"}, 24);
  request.fault = Fault::kSwapExperts;
  const auto report = ValueOrDie(evidence::Verify(request));
  EXPECT_EQ(report.sides[1].different(), (Place{0, 0, What::kCombine}));
}

bool IsRefused(const evidence::VerifyRequest& request) {
  const auto report = evidence::Verify(request);
  return !report && std::holds_alternative<Rejections>(report.error()) &&
         std::get<Rejections>(report.error())
             .Has(RejectionCode::kPlanOptionInvalid);
}

TEST(Inject, E3_AFaultWithoutAPlaceIsRefused) {
  evidence::VerifyRequest request = RequestFor(Demo(), {"ep=2"}, 24);
  request.fault = Fault::kWrongToken;
  EXPECT_TRUE(IsRefused(request));
  request = RequestFor(Demo(), {"ep=2", "single"}, 24);
  for (const Fault fault : {Fault::kPermuteRanks, Fault::kDuplicateDevice}) {
    request.fault = fault;
    EXPECT_TRUE(IsRefused(request)) << Name(fault);
  }
  request = RequestFor(Tiny("dense_r3"), {"single", "single"}, 24);
  for (const Fault fault :
       {Fault::kSwapExperts, Fault::kDropReduce, Fault::kDoubleResidual,
        Fault::kStaleEpoch, Fault::kOtherK}) {
    request.fault = fault;
    EXPECT_TRUE(IsRefused(request)) << Name(fault);
  }
}

}  // namespace
}  // namespace signet::testing
