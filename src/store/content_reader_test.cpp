#include "store/content_reader.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "model/checkpoint_testing.h"
#include "model/synth.h"
#include "store/content_digest.h"
#include "store/weight_ranges.h"

namespace signet::store {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const model::Manifest> Synthesized(
    const model::testing::TempFolder& folder, int64_t expert_width,
    model::SynthOptions options) {
  nlohmann::json config = model::testing::TinyConfig(model::Family::kQwen35Moe);
  config["moe_intermediate_size"] = expert_width;
  options.config = folder.Write("config.json", config.dump()).string();
  options.folder = folder.path() / "made";
  const auto made = model::Synthesize(options);
  EXPECT_TRUE(made.has_value()) << model::testing::Text(made);
  return model::BuildManifest(std::make_shared<const model::Checkpoint>(
                                  *model::Checkpoint::Open(options.folder)))
      .value();
}

// What this process has read of files.
uint64_t BytesRead() {
  std::ifstream io("/proc/self/io");
  std::string key;
  uint64_t bytes = 0;
  io >> key >> bytes;
  EXPECT_EQ(key, "rchar:");
  return bytes;
}

// Weights of several pieces and of less than one, in more than one file.
class Reader : public ::testing::Test {
 protected:
  Reader()
      : manifest_(Synthesized(
            folder_, 70'000, {.layers = 1, .shard_bytes = uint64_t{6} << 20})) {
  }

  // Piece after piece, on this thread.
  Digest InOrder() const {
    ContentDigest content;
    for (const WeightRange& weights : WeightRanges(*manifest_)) {
      for (const model::FileRange& piece :
           ContentDigest::Pieces(weights.file_range)) {
        std::vector<std::byte> bytes(piece.size_bytes());
        EXPECT_TRUE(manifest_->checkpoint()
                        .weight_files()[piece.file]
                        .ReadAt(piece.begin_bytes, bytes.data(), bytes.size())
                        .has_value());
        content.Add(ContentDigest::OfPiece(bytes));
      }
    }
    return content.Finish();
  }

  void CutTheLastWeight() const {
    const model::FileRange last = WeightRanges(*manifest_).back().file_range;
    fs::resize_file(manifest_->checkpoint().weight_files()[last.file].path(),
                    last.end_bytes - 1);
  }

  model::testing::TempFolder folder_;
  std::shared_ptr<const model::Manifest> manifest_;
};

TEST_F(Reader, W2_AnyNumberOfThreadsGivesTheSame) {
  const Digest content = InOrder();
  for (const int threads : {0, 1, 2, 5, 40}) {
    SCOPED_TRACE(threads);
    EXPECT_EQ(ContentReader(*manifest_, threads).Finish(), content);
  }
  EXPECT_EQ(ContentReader(*manifest_).Finish(), content);
  EXPECT_EQ(ContentOf(*manifest_), content);
}

TEST_F(Reader, A3_AFileThatEndsEarlyIsAFailure) {
  CutTheLastWeight();
  for (const int threads : {0, 3}) {
    SCOPED_TRACE(threads);
    const Result<Digest> content = ContentReader(*manifest_, threads).Finish();
    ASSERT_FALSE(content.has_value());
    EXPECT_EQ(std::get<Failure>(content.error()).kind,
              FailureKind::kChangedFile);
  }
}

// A load that fails waits for no more than the pieces in work.
TEST(AbandonedReader, T1_StopsReading) {
  const model::testing::TempFolder folder;
  const auto manifest = Synthesized(folder, 10'000'000, {.sparse = true});
  const uint64_t before = BytesRead();
  {
    const ContentReader reader(*manifest, 2);
  }
  EXPECT_LT(BytesRead() - before, uint64_t{1} << 30);  // of 3.8 GB
}

TEST(ContentThreads, LeaveProcessorsToTheCopies) {
  EXPECT_EQ(ContentThreads(1), 1);
  EXPECT_EQ(ContentThreads(2), 1);
  EXPECT_EQ(ContentThreads(4), 3);
  EXPECT_EQ(ContentThreads(16), 12);
  EXPECT_EQ(ContentThreads(512), 12);
}

}  // namespace
}  // namespace signet::store
