// Ceilings are positive for any number of threads, and memory that is not
// there is a failure.

#include "evidence/bench_ceilings.h"

#include <gtest/gtest.h>

#include <variant>

#include "support/running_model.h"

namespace signet::testing {
namespace {

using evidence::Ceilings;
using evidence::MeasureCpuCeilings;

TEST(BenchCeilings, OfTheCpuAreMeasuredWithAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3}) {
    // A size that no number of threads divides.
    const Ceilings ceilings =
        ValueOrDie(MeasureCpuCeilings((1 << 20) + 4, threads));
    EXPECT_GT(ceilings.read_bytes_per_second, 1e6) << threads;
    EXPECT_GT(ceilings.operations_per_second, 1e6) << threads;
    EXPECT_EQ(ceilings.operations, "fp32");
    EXPECT_EQ(ceilings.host_to_device_bytes_per_second, 0);
  }
}

TEST(BenchCeilings, MemoryThatIsNotThereIsAFailure) {
  const Result<Ceilings> ceilings = MeasureCpuCeilings(0, 1);
  ASSERT_FALSE(ceilings.has_value());
  EXPECT_EQ(std::get<Failure>(ceilings.error()).kind, FailureKind::kMemory);
}

}  // namespace
}  // namespace signet::testing
