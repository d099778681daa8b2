// What limits the process limits what it plans: memory that resource limits
// keep from it is refused, and a processor that its affinity keeps from it does
// not count.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/tiny_checkpoint.h"
#include "support/sanitizer.h"

namespace signet::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kNeedsAddresses =
    "under a limit of its memory a program with a sanitizer does not start";

// About a gigabyte of keys and values, beside which the program itself is
// small.
std::vector<std::string> Wide(const std::string& command,
                              std::vector<std::string> more) {
  std::vector<std::string> arguments = {command,     TinyCheckpoint().string(),
                                        "--devices", "cpu",
                                        "--ctx",     "65536",
                                        "--batch",   "64"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

uint64_t PlannedBytes() {
  const Outcome outcome = Signet(Wide("plan", {"--json"}));
  const json plan = json::parse(outcome.out, nullptr, false);
  if (!plan.is_object()) return 0;
  uint64_t bytes = 0;
  for (const auto& [name, size] : plan.at("ranks").at(0).at("steady").items()) {
    bytes += size.get<uint64_t>();
  }
  return bytes;
}

class MemoryLimit : public ::testing::TestWithParam<int> {};

TEST_P(MemoryLimit, HalfOfThePlanIsRefusedWithTheShortfall) {
  if (kHasSanitizer) GTEST_SKIP() << kNeedsAddresses;
  const uint64_t planned = PlannedBytes();
  ASSERT_GT(planned, uint64_t{1} << 30);
  Invocation invocation;
  invocation.limits = {{GetParam(), planned / 2}};
  invocation.arguments = Wide("run", {"-p", "a", "-n", "1", "--json"});
  const Outcome outcome = Signet(invocation);
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  const json object = json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(object.is_object()) << outcome.out << outcome.err;
  const json& rejection = object.at("rejections").at(0);
  EXPECT_EQ(rejection.at("code"), "memory_short");
  EXPECT_THAT(rejection.at("message").get<std::string>(), HasSubstr("short"));
  EXPECT_THAT(rejection.at("got").get<std::string>(), HasSubstr(" MB"));
  EXPECT_THAT(rejection.at("want").get<std::string>(), HasSubstr(" GB"));
}

TEST_P(MemoryLimit, RoomForThePlanIsAdmitted) {
  if (kHasSanitizer) GTEST_SKIP() << kNeedsAddresses;
  Invocation invocation;
  invocation.limits = {{GetParam(), 3 * PlannedBytes()}};
  invocation.arguments = Wide("plan", {});
  const Outcome outcome = Signet(invocation);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(Resource, MemoryLimit,
                         ::testing::Values(static_cast<int>(RLIMIT_AS),
                                           static_cast<int>(RLIMIT_DATA)));

json Devices(Invocation invocation) {
  invocation.arguments = {"devices", "--json"};
  const Outcome outcome = Signet(invocation);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return json::parse(outcome.out, nullptr, false);
}

TEST(DevicesCommand, TellsOfTheCpuWithinTheLimitsOfTheProcess) {
  if (kHasSanitizer) GTEST_SKIP() << kNeedsAddresses;
  const json all = Devices({}).at("cpu");
  EXPECT_EQ(all.at("name"), "cpu:0");
  EXPECT_GE(all.at("cores"), all.at("usable_cores"));
  EXPECT_GE(all.at("memory_bytes"), all.at("limit_bytes"));
  EXPECT_GE(all.at("limit_bytes"), all.at("free_bytes"));

  Invocation limited;
  limited.one_processor = true;
  limited.limits = {{RLIMIT_DATA, uint64_t{1} << 30}};
  const json less = Devices(limited).at("cpu");
  EXPECT_EQ(less.at("usable_cores"), 1);
  EXPECT_EQ(less.at("limit_bytes"), uint64_t{1} << 30);
  EXPECT_LT(less.at("free_bytes"), uint64_t{1} << 30);
  EXPECT_EQ(less.at("cores"), all.at("cores"));
}

TEST(DevicesCommand, SaysWhyThereIsNoGpu) {
  const json devices = Devices({});
  EXPECT_EQ(devices.at("gpus").empty(), devices.at("no_gpu").is_string());
  if (!devices.at("gpus").empty()) return;
  const Outcome outcome = Signet({"devices"});
  EXPECT_THAT(outcome.out,
              HasSubstr("no GPU: " + devices.at("no_gpu").get<std::string>()));
}

}  // namespace
}  // namespace signet::testing
