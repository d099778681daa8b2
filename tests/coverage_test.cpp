// Every rejection code has a test that expects it, and every step kind a test
// that names it: what is reached by none is a code nobody has seen.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "signet/rejection_code.h"
#include "step/steps.h"

namespace signet {
namespace {

// The text of every test source, this one left out.
std::string TestSources() {
  std::string all;
  for (const char* folder : {"/src", "/tests"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             std::string(SIGNET_SOURCE_DIR) + folder)) {
      const std::string name = entry.path().filename().string();
      if (!name.ends_with("_test.cpp") || name == "coverage_test.cpp") {
        continue;
      }
      std::ifstream file(entry.path());
      all.append(std::istreambuf_iterator<char>(file), {});
    }
  }
  return all;
}

// Whole identifiers only: kMesh is not found in kMeshTooLarge.
bool Names(std::string_view text, std::string_view identifier) {
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  for (size_t at = text.find(identifier); at != std::string_view::npos;
       at = text.find(identifier, at + 1)) {
    const size_t end = at + identifier.size();
    if (end == text.size() || !is_word(text[end])) return true;
  }
  return false;
}

TEST(Coverage, EveryRejectionCodeIsExpectedByATest) {
  const std::string sources = TestSources();
  ASSERT_GT(sources.size(), 100000u);
  const std::vector<std::string> enumerators = {
#define SIGNET_X(enumerator, name) #enumerator,
      SIGNET_REJECTION_CODES(SIGNET_X)
#undef SIGNET_X
  };
  ASSERT_EQ(enumerators.size(), static_cast<size_t>(kNumRejectionCodes));
  for (const std::string& enumerator : enumerators) {
    EXPECT_TRUE(Names(sources, "RejectionCode::" + enumerator))
        << enumerator << " is expected by no test";
  }
}

template <typename... Kinds>
std::vector<std::string> KindNames(std::variant<Kinds...>*) {
  return {std::string(Kinds::kName)...};
}

TEST(Coverage, EveryStepKindIsInATest) {
  const std::string sources = TestSources();
  for (const std::string& kind : KindNames(static_cast<step::Step*>(nullptr))) {
    EXPECT_TRUE(Names(sources, kind)) << kind << " is named by no test";
  }
}

}  // namespace
}  // namespace signet
