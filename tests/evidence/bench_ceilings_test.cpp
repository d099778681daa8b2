// Ceilings are positive for any number of threads, on memory and on the files
// of a checkpoint; files that changed are not read.

#include "evidence/bench_ceilings.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "model/checkpoint.h"
#include "support/running_model.h"
#include "support/temporary_folder.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {
namespace {

using evidence::Ceilings;
using evidence::MeasureCpuCeilings;
using evidence::MeasureOnFiles;
using evidence::ReadOf;

TEST(BenchCeilings, OfTheCpuAreMeasuredWithAnyNumberOfThreads) {
  // Sizes that no number of threads divides.
  const std::vector<uint32_t> one((1 << 18) + 1, 7);
  const std::vector<uint32_t> two(1001, 7);
  const std::array regions = {std::as_bytes(std::span(one)),
                              std::as_bytes(std::span(two))};
  for (const int threads : {1, 2, 3}) {
    const Ceilings ceilings = ValueOrDie(MeasureCpuCeilings(regions, threads));
    EXPECT_GT(ceilings.read_bytes_per_second, 1e6) << threads;
    EXPECT_GT(ceilings.operations_per_second, 1e6) << threads;
    EXPECT_EQ(ceilings.operations, "fp32");
    EXPECT_EQ(ceilings.read_of, ReadOf::kMemory);
    EXPECT_EQ(ceilings.host_to_device_bytes_per_second, 0);
  }
}

TEST(BenchCeilings, OfTheFilesOfACheckpointAreMeasuredWhileTheyAreAsOpened) {
  const std::filesystem::path folder = TemporaryFolder() / "ceilings";
  ASSERT_TRUE(WriteTinyCheckpoint("moe_per_expert_text", folder).has_value());
  const model::Checkpoint checkpoint =
      ValueOrDie(model::Checkpoint::Open(folder));
  ASSERT_GT(checkpoint.weight_files().size(), 1u);
  const std::unique_ptr<backend::Device> device =
      backend::cpu::MakeCpuDevice(/*ordinal=*/0, /*num_threads=*/1);
  const uint64_t first =
      checkpoint.weight_files()[FileId(0)].identity().size_bytes;
  // A part of one file, and all files with more asked for than there is.
  for (const uint64_t bytes : {first / 2, 1000 * first}) {
    const Ceilings ceilings =
        ValueOrDie(MeasureOnFiles(*device, checkpoint, bytes, 2));
    EXPECT_EQ(ceilings.read_of, ReadOf::kFiles);
    EXPECT_GT(ceilings.read_bytes_per_second, 1e6);
  }

  const auto& file = checkpoint.weight_files()[FileId(0)];
  std::filesystem::resize_file(file.path(), first - 1);
  const Result<Ceilings> changed =
      MeasureOnFiles(*device, checkpoint, 2 * first, 2);
  ASSERT_FALSE(changed.has_value());
  EXPECT_EQ(std::get<Failure>(changed.error()).kind, FailureKind::kChangedFile);
}

}  // namespace
}  // namespace signet::testing
