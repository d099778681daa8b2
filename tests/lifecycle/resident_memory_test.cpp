// E4: a process that loads, answers and unloads again and again stays as large
// as it was.

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "lifecycle/served_model.h"
#include "support/sanitizer.h"

namespace signet::testing {
namespace {

constexpr int kWarmUp = 10;
constexpr int kCycles = 50;
// The allocator's own slack; one leaked model is larger.
constexpr int64_t kSlackKib = 256;
// Of the heap in use, which shows a leak that fits into what was freed before.
constexpr int64_t kHeapSlackBytes = 16 << 10;

int64_t ResidentKib() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  file >> size >> resident;
  return resident * (sysconf(_SC_PAGESIZE) >> 10);
}

int64_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

class ResidentMemory : public ::testing::TestWithParam<const char*> {};

TEST_P(ResidentMemory, E4_FiftyLoadsAnswersAndUnloadsLeaveNoTrace) {
  if (kHasSanitizer) {
    GTEST_SKIP() << "a sanitizer's allocator keeps what was freed";
  }
  Engine engine = ValueOrDie(Engine::Make({.threads = 1}));
  const Plan plan = LifecyclePlan(GetParam());
  const std::vector<Request> requests = LifecycleRequests(2, 3);
  std::vector<std::vector<int32_t>> reference;
  const auto cycle = [&] {
    Model model = ValueOrDie(engine.Load(plan, {}));
    {
      Session session = ValueOrDie(Session::Make(model, 2));
      const auto ids = Answer(session, requests);
      if (reference.empty()) reference = ids;
      EXPECT_EQ(ids, reference);
    }
    ValueOrDie(model.Unload());
  };
  for (int i = 0; i < kWarmUp; ++i) cycle();
  const int64_t before = ResidentKib();
  const int64_t heap_before = HeapBytes();
  for (int i = 0; i < kCycles; ++i) cycle();
  const int64_t after = ResidentKib();
  std::printf("%s: %lld KiB resident, %lld KiB after %d cycles\n", GetParam(),
              static_cast<long long>(before), static_cast<long long>(after),
              kCycles);
  EXPECT_LE(after - before, kSlackKib);
  EXPECT_LE(HeapBytes() - heap_before, kHeapSlackBytes);
}

INSTANTIATE_TEST_SUITE_P(Meshes, ResidentMemory,
                         ::testing::Values("single", "ep=4"),
                         [](const auto& info) {
                           return info.index == 0 ? "single" : "ep4";
                         });

}  // namespace
}  // namespace signet::testing
