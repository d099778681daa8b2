#include "backend/cpu/memory_limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace signet::backend::cpu {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kGiB = uint64_t{1} << 30;

// Folders of made-up files in place of /proc and /sys/fs/cgroup.
class MemoryLimitsTest : public ::testing::Test {
 protected:
  MemoryLimitsTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(::testing::TempDir()) /
            (std::string("signet_memory_limits_") + test->name());
    fs::remove_all(root_);
    // 64 GiB in all, 40 GiB available.
    Write("proc/meminfo",
          "MemTotal:       67108864 kB\nMemFree:  1024 kB\n"
          "MemAvailable:   41943040 kB\n");
    Write("proc/self/status",
          "Name:\tsignet\nVmSize:\t 3145728 kB\nVmData:\t 1048576 kB\n");
  }
  ~MemoryLimitsTest() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const fs::path full = root_ / path;
    fs::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  SystemRoots roots() const { return {root_ / "proc", root_ / "cgroup"}; }
  uint64_t AvailableGiB(const ProcessLimits& limits = {}) const {
    const Bytes available = AvailableMemory(roots(), limits);
    EXPECT_EQ(available.value() % kGiB, 0u);
    return available.value() / kGiB;
  }
  static std::string GiB(uint64_t count) {
    return std::to_string(count * kGiB) + "\n";
  }

  fs::path root_;
};

TEST_F(MemoryLimitsTest, WithoutLimitsIsWhatTheMachineHas) {
  EXPECT_EQ(TotalMemory(roots()), Bytes(64 * kGiB));
  EXPECT_EQ(AvailableGiB(), 40u);
}

TEST_F(MemoryLimitsTest, TheLimitIsTheLeastThereIs) {
  EXPECT_EQ(MemoryLimit(roots(), {}), Bytes(64 * kGiB));
  Write("proc/self/cgroup", "0::/user/job\n");
  Write("cgroup/user/memory.max", GiB(10));
  Write("cgroup/user/job/memory.max", "max\n");
  EXPECT_EQ(MemoryLimit(roots(), {}), Bytes(10 * kGiB));
  EXPECT_EQ(MemoryLimit(roots(), {.data = Bytes(8 * kGiB)}), Bytes(8 * kGiB));
}

TEST_F(MemoryLimitsTest, ControlGroupOfVersion2) {
  Write("proc/self/cgroup", "0::/user/job\n");
  Write("cgroup/user/job/memory.max", GiB(10));
  Write("cgroup/user/job/memory.current", GiB(7));
  EXPECT_EQ(AvailableGiB(), 3u);
  // Pages of files can be had back.
  Write("cgroup/user/job/memory.stat",
        "anon 1\ninactive_file " + GiB(2) + "active_file " + GiB(3));
  EXPECT_EQ(AvailableGiB(), 8u);
  Write("cgroup/user/job/memory.max", "max\n");
  EXPECT_EQ(AvailableGiB(), 40u);
}

TEST_F(MemoryLimitsTest, ParentGroupsCount) {
  Write("proc/self/cgroup", "0::/user/job\n");
  Write("cgroup/user/job/memory.max", GiB(10));
  Write("cgroup/user/job/memory.current", GiB(1));
  Write("cgroup/user/memory.max", GiB(12));
  Write("cgroup/user/memory.current", GiB(8));
  EXPECT_EQ(AvailableGiB(), 4u);
}

TEST_F(MemoryLimitsTest, ContainerThatSeesItsOwnRoot) {
  Write("proc/self/cgroup", "0::/../../docker/0123\n");
  Write("cgroup/memory.max", GiB(6));
  Write("cgroup/memory.current", GiB(1));
  EXPECT_EQ(AvailableGiB(), 5u);
}

TEST_F(MemoryLimitsTest, ControlGroupOfVersion1) {
  Write("proc/self/cgroup", "11:cpu,cpuacct:/x\n5:hugetlb,memory:/job\n0::/\n");
  Write("cgroup/memory/job/memory.limit_in_bytes", GiB(9));
  Write("cgroup/memory/job/memory.usage_in_bytes", GiB(4));
  EXPECT_EQ(AvailableGiB(), 5u);
  Write("cgroup/memory/job/memory.stat",
        "total_inactive_file " + GiB(1) + "total_active_file 0\n");
  EXPECT_EQ(AvailableGiB(), 6u);
  // How version 1 writes "none".
  Write("cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(AvailableGiB(), 40u);
}

TEST_F(MemoryLimitsTest, UseOverTheLimitLeavesNothing) {
  Write("proc/self/cgroup", "0::/job\n");
  Write("cgroup/job/memory.max", GiB(2));
  Write("cgroup/job/memory.current", GiB(3));
  EXPECT_EQ(AvailableGiB(), 0u);
}

TEST_F(MemoryLimitsTest, ResourceLimitsCountWhatIsInUse) {
  EXPECT_EQ(AvailableGiB({.address_space = Bytes(8 * kGiB)}), 5u);
  EXPECT_EQ(AvailableGiB({.data = Bytes(8 * kGiB)}), 7u);
  EXPECT_EQ(AvailableGiB({.address_space = Bytes(kGiB)}), 0u);
}

TEST_F(MemoryLimitsTest, NothingToReadIsNothingAvailable) {
  fs::remove_all(root_);
  EXPECT_EQ(TotalMemory(roots()), Bytes());
  EXPECT_EQ(AvailableMemory(roots(), {}), Bytes());
}

TEST(MemoryLimits, ThisMachineHasSome) {
  EXPECT_GT(TotalMemory(), Bytes());
  const Bytes available = AvailableMemory({}, ProcessLimits::OfThisProcess());
  EXPECT_GT(available, Bytes());
  EXPECT_LE(available, TotalMemory());
}

}  // namespace
}  // namespace signet::backend::cpu
