#include "exec/lanes.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>
#include <vector>

namespace signet::exec {
namespace {

using backend::Lane;
using Pairs = std::set<std::pair<size_t, size_t>>;  // later, earlier

std::vector<LanePlace> Place(size_t count, const Pairs& pairs) {
  return PlaceInLanes(count, [&](size_t later, size_t earlier) {
    return pairs.count({later, earlier}) > 0;
  });
}

std::vector<size_t> OnSide(const std::vector<LanePlace>& places) {
  std::vector<size_t> side;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].lane == Lane::kSide) side.push_back(i);
  }
  return side;
}

// What is complete when each launch starts, by the order of the lanes and by
// what is followed.
std::vector<std::vector<bool>> Complete(const std::vector<LanePlace>& places) {
  std::vector<std::vector<bool>> complete(
      places.size(), std::vector<bool>(places.size(), false));
  const auto start_after = [&](size_t i, size_t earlier) {
    complete[i][earlier] = true;
    for (size_t j = 0; j < places.size(); ++j) {
      if (complete[earlier][j]) complete[i][j] = true;
    }
  };
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t j = i; j-- > 0;) {
      if (places[j].lane != places[i].lane) continue;
      start_after(i, j);
      break;
    }
    if (places[i].follows) start_after(i, *places[i].follows);
  }
  return complete;
}

TEST(Lanes, AChainStaysOnTheMainLane) {
  const auto places = Place(4, {{1, 0}, {2, 1}, {3, 2}, {3, 0}});
  EXPECT_EQ(OnSide(places), std::vector<size_t>());
  for (const LanePlace& place : places) {
    EXPECT_FALSE(place.follows);
    EXPECT_FALSE(place.is_followed);
  }
}

// A routed block: norm 0, scores 1, the shared expert's products 2, its
// activation 3, route 4, experts 5, its end 6, the sum of all 7.
TEST(Lanes, TheSharedExpertRunsBesideTheRoutedOnes) {
  const auto places = Place(
      8,
      {{1, 0}, {2, 0}, {3, 2}, {4, 1}, {5, 0}, {5, 4}, {6, 3}, {7, 5}, {7, 6}});
  EXPECT_EQ(OnSide(places), (std::vector<size_t>{2, 3, 6}));
  EXPECT_EQ(places[2].follows, 0u);
  EXPECT_TRUE(places[0].is_followed);
  EXPECT_FALSE(places[3].follows);
  EXPECT_EQ(places[7].follows, 6u);
  EXPECT_TRUE(places[6].is_followed);
}

// Memory that a launch of the main lane has done with is written by one of the
// side lane.
TEST(Lanes, ALaunchFollowsTheLastOfTheOtherLaneThatItDependsOn) {
  const auto places =
      Place(7, {{1, 0}, {2, 0}, {3, 1}, {4, 3}, {5, 2}, {5, 3}, {6, 4}});
  EXPECT_EQ(OnSide(places), (std::vector<size_t>{2, 5}));
  EXPECT_EQ(places[5].follows, 3u);
  EXPECT_TRUE(places[3].is_followed);
}

TEST(Lanes, TheLastLaunchFollowsWhatIsBesideIt) {
  const auto places = Place(4, {{1, 0}, {2, 0}, {3, 1}});
  EXPECT_EQ(OnSide(places), std::vector<size_t>{2});
  EXPECT_EQ(places[3].lane, Lane::kMain);
  EXPECT_EQ(places[3].follows, 2u);
}

TEST(Lanes, TheSideLaneBeginsBehindALaunchOfTheMainLane) {
  const auto places = Place(3, {});
  EXPECT_EQ(OnSide(places), std::vector<size_t>{1});
  EXPECT_EQ(places[1].follows, 0u);
}

TEST(Lanes, AnyLaunchStartsAfterAllItDependsOn) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const size_t count = 2 + random() % 24;
    const uint32_t chance = 2 + static_cast<uint32_t>(random() % 6);
    Pairs pairs;
    for (size_t i = 1; i < count; ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (random() % chance == 0) pairs.insert({i, j});
      }
    }
    const auto places = Place(count, pairs);
    const auto complete = Complete(places);
    for (const auto& [later, earlier] : pairs) {
      ASSERT_TRUE(complete[later][earlier]) << later << " after " << earlier;
    }
    bool side_begun = false;
    for (size_t i = 0; i < count; ++i) {
      const LanePlace& place = places[i];
      if (place.follows) {
        ASSERT_LT(*place.follows, i);
        ASSERT_NE(places[*place.follows].lane, place.lane);
        ASSERT_TRUE(places[*place.follows].is_followed);
      }
      if (place.lane == Lane::kSide && !side_begun) {
        ASSERT_TRUE(place.follows);
        side_begun = true;
      }
      if (i + 1 < count) {
        ASSERT_TRUE(i == 0 || complete[i][0] || place.lane == Lane::kMain);
      } else {
        for (size_t j = 0; j < i; ++j) ASSERT_TRUE(complete[i][j]) << j;
      }
    }
  }
}

}  // namespace
}  // namespace signet::exec
