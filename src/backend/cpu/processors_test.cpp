#include "backend/cpu/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace signet::backend::cpu {
namespace {

namespace fs = std::filesystem;

// Folders of made-up files in place of /proc and /sys/fs/cgroup, on a thread
// that may use every processor it had before.
class ProcessorsTest : public ::testing::Test {
 protected:
  ProcessorsTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(::testing::TempDir()) /
            (std::string("signet_processors_") + test->name());
    fs::remove_all(root_);
    Write("proc/self/cgroup", "0::/\n");
    sched_getaffinity(0, sizeof(before_), &before_);
  }
  ~ProcessorsTest() override {
    sched_setaffinity(0, sizeof(before_), &before_);
    fs::remove_all(root_);
  }

  void Write(const std::string& path, const std::string& text) {
    const fs::path full = root_ / path;
    fs::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  SystemRoots roots() const { return {root_ / "proc", root_ / "cgroup"}; }

  fs::path root_;
  cpu_set_t before_;
};

TEST_F(ProcessorsTest, AffinityLimits) {
  const int all = UsableProcessors(roots());
  EXPECT_EQ(all, CPU_COUNT(&before_));
  EXPECT_LE(all, OnlineProcessors());
  int first = 0;
  while (!CPU_ISSET(first, &before_)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(UsableProcessors(roots()), 1);
}

// One whole processor is always within the affinity.
TEST_F(ProcessorsTest, QuotaOfVersion2) {
  Write("proc/self/cgroup", "0::/user/job\n");
  Write("cgroup/user/job/cpu.max", "max 100000\n");
  EXPECT_EQ(UsableProcessors(roots()), CPU_COUNT(&before_));
  Write("cgroup/user/cpu.max", "190000 100000\n");
  EXPECT_EQ(UsableProcessors(roots()), 1);
}

TEST_F(ProcessorsTest, QuotaOfVersion1) {
  Write("proc/self/cgroup", "3:cpu,cpuacct:/job\n0::/\n");
  Write("cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  Write("cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(UsableProcessors(roots()), CPU_COUNT(&before_));
  Write("cgroup/cpu/job/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(UsableProcessors(roots()), 1);
}

TEST_F(ProcessorsTest, AQuotaUnderOneProcessorLeavesOne) {
  Write("cgroup/cpu.max", "20000 100000\n");
  EXPECT_EQ(UsableProcessors(roots()), 1);
}

TEST_F(ProcessorsTest, ModelIsTheKernelsName) {
  EXPECT_EQ(ProcessorModel(roots()), "");
  Write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU 9 @ 2 GHz\n");
  EXPECT_EQ(ProcessorModel(roots()), "Some CPU 9 @ 2 GHz");
}

}  // namespace
}  // namespace signet::backend::cpu
