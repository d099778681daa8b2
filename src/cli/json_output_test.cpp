#include "cli/json_output.h"

#include <gtest/gtest.h>

namespace signet::cli {
namespace {

TEST(ErrorJson, FailureHasKindPlaceAndMessage) {
  EXPECT_EQ(ErrorJson(Failure{FailureKind::kChangedFile, "a.safetensors",
                              "the file changed"}),
            "{\"failure\":{\"kind\":\"changed_file\","
            "\"where\":\"a.safetensors\",\"message\":\"the file changed\"}}\n");
}

TEST(ErrorJson, RejectionsKeepTheirOrder) {
  Rejections rejections(
      Rejection{RejectionCode::kMemoryShort, "cpu:0", "1", "2", "short"});
  rejections.Add(Rejection{RejectionCode::kFileMissing, "", "", "", "gone"});
  EXPECT_EQ(ErrorJson(rejections),
            "{\"rejections\":[{\"code\":\"memory_short\",\"where\":\"cpu:0\","
            "\"got\":\"1\",\"want\":\"2\",\"message\":\"short\"},"
            "{\"code\":\"file_missing\",\"where\":\"\",\"got\":\"\","
            "\"want\":\"\",\"message\":\"gone\"}]}\n");
}

TEST(ErrorJson, IsUtf8ForAnyFileName) {
  const std::string json = ErrorJson(Failure{FailureKind::kIo,
                                             "a\xff"
                                             "b",
                                             "unreadable"});
  EXPECT_NE(json.find("a\xef\xbf\xbd"
                      "b"),
            std::string::npos)
      << json;
}

TEST(PlanJson, AddsWhatIsShort) {
  const Result<void> fits;
  EXPECT_EQ(PlanJson("{\"contract\":\"c\"}", fits), "{\"contract\":\"c\"}\n");
  const Result<void> is_short = tl::unexpected<Error>(Rejections(
      Rejection{RejectionCode::kMemoryShort, "cpu:0", "1", "2", "short"}));
  EXPECT_EQ(PlanJson("{\"contract\":\"c\"}", is_short),
            "{\"contract\":\"c\",\"rejections\":[{\"code\":\"memory_short\","
            "\"where\":\"cpu:0\",\"got\":\"1\",\"want\":\"2\","
            "\"message\":\"short\"}]}\n");
}

}  // namespace
}  // namespace signet::cli
