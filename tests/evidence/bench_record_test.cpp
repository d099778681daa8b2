// A bench on record replaces a bench and nothing else, whole or not at all.

#include "evidence/bench_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "support/temporary_folder.h"

namespace signet::testing {
namespace {

namespace fs = std::filesystem;
using evidence::CheckBenchPlace;
using evidence::WriteBench;

fs::path Folder(const std::string& name) {
  const fs::path folder = TemporaryFolder() / ("bench_record_" + name);
  fs::create_directories(folder);
  return folder;
}

std::string Read(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(BenchRecord, ReplacesABench) {
  const fs::path file = Folder("over") / "a.json";
  ASSERT_TRUE(WriteBench({{"signet_bench", 1}, {"run", 1}}, file).has_value());
  ASSERT_TRUE(CheckBenchPlace(file).has_value());
  ASSERT_TRUE(WriteBench({{"signet_bench", 1}, {"run", 2}}, file).has_value());
  EXPECT_EQ(nlohmann::json::parse(Read(file))["run"], 2);
  EXPECT_EQ(std::distance(fs::directory_iterator(file.parent_path()), {}), 1);
}

TEST(BenchRecord, ReplacesNothingElse) {
  const fs::path folder = Folder("else");
  for (const char* text : {"", "[]", "{\"signet_receipt\": 1}",
                           "{\"signet_bench\": 2}", "{\"signet_bench\": 1"}) {
    const fs::path file = folder / "a.json";
    std::ofstream(file, std::ios::binary) << text;
    const Result<void> written = WriteBench({{"signet_bench", 1}}, file);
    ASSERT_FALSE(written.has_value()) << text;
    EXPECT_TRUE(
        std::get<Rejections>(written.error()).Has(RejectionCode::kJsonInvalid));
    EXPECT_EQ(Read(file), text);
  }
  fs::create_symlink("/nowhere", folder / "link.json");
  EXPECT_FALSE(CheckBenchPlace(folder / "link.json").has_value());
  EXPECT_FALSE(CheckBenchPlace(folder).has_value());
  const Result<void> nowhere = CheckBenchPlace(folder / "none" / "a.json");
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_TRUE(
      std::get<Rejections>(nowhere.error()).Has(RejectionCode::kFileMissing));
}

}  // namespace
}  // namespace signet::testing
