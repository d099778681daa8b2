#include "cli/flags.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace signet::cli {
namespace {

using Ids = std::vector<int32_t>;

TEST(ParseInteger, TakesWholeNumbersThatFit) {
  EXPECT_EQ(ParseInteger("0"), 0);
  EXPECT_EQ(ParseInteger("-7"), -7);
  EXPECT_EQ(ParseInteger("9223372036854775807"),
            std::numeric_limits<int64_t>::max());
  for (const char* text : {"", " 1", "1 ", "+1", "1.0", "0x1", "1e3", "--1",
                           "9223372036854775808", "-9223372036854775809"}) {
    EXPECT_EQ(ParseInteger(text), std::nullopt) << text;
  }
}

TEST(ParseUnsigned, TakesWholeNumbersThatFit) {
  EXPECT_EQ(ParseUnsigned("18446744073709551615"),
            std::numeric_limits<uint64_t>::max());
  for (const char* text : {"", "-1", "-0", "18446744073709551616", "1x"}) {
    EXPECT_EQ(ParseUnsigned(text), std::nullopt) << text;
  }
}

TEST(ParseNumber, TakesFiniteNumbers) {
  EXPECT_EQ(ParseNumber("0"), 0.0f);
  EXPECT_EQ(ParseNumber("-0.5"), -0.5f);
  EXPECT_EQ(ParseNumber("1e-3"), 1e-3f);
  for (const char* text : {"", "nan", "-nan", "inf", "-inf", "infinity", "1e99",
                           "1e-99", "1,5", "0.5f", "."}) {
    EXPECT_EQ(ParseNumber(text), std::nullopt) << text;
  }
}

TEST(ParseIds, TakesListsOfIds) {
  EXPECT_EQ(ParseIds("7"), Ids({7}));
  EXPECT_EQ(ParseIds("1,2147483647,0"), Ids({1, 2147483647, 0}));
  for (const char* text :
       {"", ",", "1,", ",1", "1,,2", "-1", "1, 2", "2147483648", "a"}) {
    EXPECT_EQ(ParseIds(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace signet::cli
