// How many experts a call met, and what a repeated measurement is summed up
// to.

#include "evidence/bench_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "evidence/bench.h"
#include "evidence/bench_spread.h"

namespace signet::testing {
namespace {

using evidence::CountDistinct;
using evidence::DecodeResult;
using evidence::RouteCounter;
using evidence::RoutedExperts;
using evidence::Spread;
using evidence::SpreadOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Ids = std::vector<int32_t>;

TEST(BenchRoutes, AnExpertMetTwiceCountsOnce) {
  EXPECT_EQ(CountDistinct(Ids{3, 1, 3, 2, 1}, 4), 3);
  EXPECT_EQ(CountDistinct(Ids{}, 4), 0);
  EXPECT_EQ(CountDistinct(Ids{0, 1, 2, 3}, 4), 4);
}

TEST(BenchRoutes, WhatIsNoExpertIsNotCounted) {
  EXPECT_EQ(CountDistinct(Ids{-1, 4, 2}, 4), 1);
}

TEST(BenchRoutes, TheMeanIsOverLayersAndCalls) {
  RouteCounter routes(8);
  EXPECT_EQ(routes.Mean(), 0);
  routes.BeginCall();
  routes.Add(Ids{0, 1});
  routes.Add(Ids{2, 3, 4, 5});
  EXPECT_THAT(routes.last(), ElementsAre(2, 4));
  routes.BeginCall();
  routes.Add(Ids{7, 7});
  routes.Add(Ids{7, 6, 5, 5});
  EXPECT_THAT(routes.last(), ElementsAre(1, 3));
  EXPECT_EQ(routes.calls(), 2);
  EXPECT_DOUBLE_EQ(routes.Mean(), 2.5);
}

TEST(BenchRoutes, RowsThatMeetTooFewExpertsMakeARunVoid) {
  DecodeResult decode;
  EXPECT_THAT(decode.VoidReason(), IsEmpty());  // a dense model
  decode.experts = RoutedExperts{.steps = 8, .met = 45.9, .uniform = 57.4};
  EXPECT_THAT(decode.VoidReason(), HasSubstr("routes too alike"));
  decode.experts->met = 46;
  EXPECT_THAT(decode.VoidReason(), IsEmpty());
  decode.experts->same_tokens = false;
  EXPECT_THAT(decode.VoidReason(), HasSubstr("other tokens"));
}

TEST(BenchSpread, OfRunsIsTheMedianAndTheExtremes) {
  const Spread odd = SpreadOf({3, 1, 100});
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 100);
  EXPECT_EQ(SpreadOf({4, 1, 2, 8}).median, 3);
  EXPECT_EQ(SpreadOf({}).median, 0);
}

}  // namespace
}  // namespace signet::testing
