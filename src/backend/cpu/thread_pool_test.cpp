#include "backend/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace signet::backend::cpu {
namespace {

TEST(ThreadPoolTest, RunsEveryTaskOnceForAnyCount) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.num_threads(), threads);
    for (int64_t count : {0, 1, 2, 3, 8, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
      std::atomic<int> out_of_range = 0;
      pool.ParallelFor(count, [&](int64_t task, int thread) {
        if (task < 0 || task >= count || thread < 0 || thread >= threads) {
          out_of_range.fetch_add(1);
          return;
        }
        hits[static_cast<size_t>(task)].fetch_add(1);
      });
      for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
      EXPECT_EQ(out_of_range.load(), 0);
    }
  }
}

// The result of a run is visible to the driver without further
// synchronisation, and a task sees what the driver wrote before.
TEST(ThreadPoolTest, RunsAreOrderedForPlainMemory) {
  ThreadPool pool(3);
  std::vector<int64_t> values(64, 0);
  for (int64_t round = 0; round < 3000; ++round) {
    const int64_t expected = round;
    pool.ParallelFor(64, [&](int64_t task, int) {
      int64_t& value = values[static_cast<size_t>(task)];
      value = value == expected ? value + 1 : -1;
    });
  }
  for (int64_t value : values) EXPECT_EQ(value, 3000);
}

TEST(ThreadPoolTest, WakesThreadsThatFellAsleep) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    // Both tasks must be inside at once, so the sleeper has to come.
    std::atomic<int> inside = 0;
    pool.ParallelFor(2, [&](int64_t, int) {
      inside.fetch_add(1);
      while (inside.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(inside.load(), 2);
  }
}

TEST(ThreadPoolTest, DriverWaitsForALongTaskOfAnother) {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> inside = 0;
    int64_t slow_result = 0;  // plain memory: read after the run only
    pool.ParallelFor(2, [&](int64_t, int thread) {
      inside.fetch_add(1);
      while (inside.load() < 2) std::this_thread::yield();
      if (thread == 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      slow_result = 1;
    });
    EXPECT_EQ(slow_result, 1);
  }
}

TEST(ThreadPoolTest, StartsAndStopsWithoutWork) {
  for (int round = 0; round < 50; ++round) ThreadPool pool(4);
}

TEST(ThreadPoolTest, StopsWhileThreadsSleep) {
  ThreadPool pool(3);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

TEST(ThreadPoolDeathTest, NestedUseIsRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // One task runs inline, and is refused like many.
  for (int64_t count : {1, 4}) {
    EXPECT_DEATH(
        {
          ThreadPool pool(2);
          pool.ParallelFor(count, [&](int64_t, int) {
            pool.ParallelFor(1, [](int64_t, int) {});
          });
        },
        "running");
  }
}

}  // namespace
}  // namespace signet::backend::cpu
