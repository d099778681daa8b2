#include "backend/cpu/cpu_device.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_kernels.h"
#include "backend/kernel_bench.h"

namespace signet::backend::cpu {
namespace {

// A file of `text`, gone when the test is.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    std::string path = ::testing::TempDir() + "signet_device_XXXXXX";
    fd_ = mkstemp(path.data());
    unlink(path.c_str());
    EXPECT_EQ(write(fd_, text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
  }
  ~TemporaryFile() { close(fd_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

std::string MessageOf(const Error& error) { return Describe(error); }

FailureKind KindOf(const Error& error) { return std::get<Failure>(error).kind; }

TEST(CpuDevice, FactsTellRanksOfOneMachineApart) {
  const auto first = MakeCpuDevice(0, 1);
  const auto second = MakeCpuDevice(1, 2);
  EXPECT_EQ(first->facts().backend, "cpu");
  EXPECT_EQ(second->facts().ordinal, 1);
  EXPECT_NE(first->facts().identity, second->facts().identity);
  EXPECT_EQ(first->facts().identity, CpuFacts(0).identity);
  EXPECT_EQ(first->facts().architecture, InstructionSet());
  EXPECT_GT(first->facts().memory, Bytes());
  EXPECT_GT(first->FreeMemory(), Bytes());
  EXPECT_LE(first->FreeMemory(), first->facts().memory);
}

TEST(CpuDevice, AllocationsAreAlignedZerosAndCounted) {
  const auto device = MakeCpuDevice(0, 1);
  const AllocationCounts before = device->counts();
  EXPECT_EQ(before, AllocationCounts());
  {
    std::vector<Memory> all;
    uint64_t bytes = 0;
    for (const uint64_t size : {0u, 1u, 4097u, 100000u, 9u << 20}) {
      for (const uint64_t alignment : {1u, 64u, 4096u, 1u << 21}) {
        Result<Memory> memory =
            device->Allocate(MemoryClass::kKv, Bytes(size), alignment);
        ASSERT_TRUE(memory.has_value());
        EXPECT_EQ(reinterpret_cast<uint64_t>(memory->data()) % alignment, 0u);
        EXPECT_EQ(memory->size(), Bytes(size));
        EXPECT_TRUE(std::all_of(memory->data(), memory->data() + size,
                                [](std::byte b) { return b == std::byte{}; }));
        std::fill_n(memory->data(), size, std::byte{0xAB});
        bytes += size;
        all.push_back(*std::move(memory));
      }
    }
    const AllocationCounts counts = device->counts();
    EXPECT_EQ(counts.allocations, 20u);
    EXPECT_EQ(counts.frees, 0u);
    EXPECT_EQ(counts.LiveBytes(MemoryClass::kKv), Bytes(bytes));
    EXPECT_EQ(counts.LiveBytes(MemoryClass::kDense), Bytes());
  }
  const AllocationCounts after = device->counts();
  EXPECT_EQ(after.frees, 20u);
  EXPECT_EQ(after.live, before.live);
}

TEST(CpuDevice, MemoryMovesAndIsFreedOnce) {
  const auto device = MakeCpuDevice(0, 1);
  Memory a = *device->Allocate(MemoryClass::kIo, Bytes(10), 64);
  std::byte* data = a.data();
  Memory b = std::move(a);
  EXPECT_TRUE(a.empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(b.data(), data);
  Memory c = *device->Allocate(MemoryClass::kDense, Bytes(20), 64);
  c = std::move(b);
  EXPECT_EQ(device->counts().frees, 1u);
  EXPECT_EQ(device->counts().LiveBytes(MemoryClass::kDense), Bytes());
  c.Reset();
  c.Reset();
  EXPECT_EQ(device->counts().frees, 2u);
  EXPECT_EQ(device->counts().LiveBytes(MemoryClass::kIo), Bytes());
}

TEST(CpuDevice, MemoryThatCannotBeHadIsAFailureThatNamesIt) {
  const auto device = MakeCpuDevice(0, 1);
  for (const Bytes size : {Bytes(uint64_t{1} << 62), Bytes::Overflow()}) {
    const Result<Memory> memory =
        device->Allocate(MemoryClass::kExperts, size, 64);
    ASSERT_FALSE(memory.has_value());
    EXPECT_EQ(KindOf(memory.error()), FailureKind::kMemory);
    const std::string message = MessageOf(memory.error());
    EXPECT_NE(message.find("experts"), std::string::npos) << message;
    EXPECT_NE(message.find(HumanBytes(size)), std::string::npos) << message;
  }
  EXPECT_EQ(device->counts(), AllocationCounts());
}

TEST(CpuDevice, MapsAndReadsFiles) {
  const auto device = MakeCpuDevice(0, 1);
  FileMapping mapping;
  {
    const TemporaryFile file("hello mapped world");
    mapping = *device->Map(file.fd(), Bytes(18), "a/file");
    std::array<std::byte, 6> part = {};
    ASSERT_TRUE(device->Read(file.fd(), 6, Bytes(6), part.data(), "a/file")
                    .has_value());
    EXPECT_EQ(std::string(reinterpret_cast<char*>(part.data()), 6), "mapped");
    const Result<void> past =
        device->Read(file.fd(), 15, Bytes(6), part.data(), "a/file");
    ASSERT_FALSE(past.has_value());
    EXPECT_EQ(KindOf(past.error()), FailureKind::kIo);
    EXPECT_NE(MessageOf(past.error()).find("a/file"), std::string::npos);
  }
  // The mapping does not need the descriptor.
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(mapping.data()), 18),
            "hello mapped world");
  mapping.Advise(Bytes(3), Bytes(100), Advice::kWillNeed);
  mapping.Advise(Bytes(50), Bytes(1), Advice::kDontNeed);
  EXPECT_EQ(device->counts().mapped, Bytes(18));
  mapping.Reset();
  EXPECT_EQ(device->counts().mapped, Bytes());
  EXPECT_EQ(device->counts().maps, 1u);
  EXPECT_EQ(device->counts().unmaps, 1u);
}

TEST(CpuDevice, AFileThatCannotBeMappedIsAFailure) {
  const auto device = MakeCpuDevice(0, 1);
  const TemporaryFile file("x");
  for (const auto& [fd, size] : {std::pair(-1, 1), std::pair(file.fd(), 0)}) {
    const Result<FileMapping> mapping =
        device->Map(fd, Bytes(static_cast<uint64_t>(size)), "some/path");
    ASSERT_FALSE(mapping.has_value());
    EXPECT_EQ(KindOf(mapping.error()), FailureKind::kIo);
    EXPECT_NE(MessageOf(mapping.error()).find("some/path"), std::string::npos);
  }
  EXPECT_EQ(device->counts(), AllocationCounts());
}

class FailOnly final : public FaultHook {
 public:
  explicit FailOnly(FaultPoint point) : point_(point) {}
  bool ShouldFail(FaultPoint point) override {
    ++seen_[static_cast<size_t>(point)];
    return point == point_;
  }
  int seen(FaultPoint point) const { return seen_[static_cast<size_t>(point)]; }

 private:
  FaultPoint point_;
  std::array<int, kAllFaultPoints.size()> seen_ = {};
};

TEST(CpuDevice, EveryOperationPassesItsFaultPoint) {
  const auto device = MakeCpuDevice(0, 1);
  const TemporaryFile file("text");
  const LoadKey key = testing::KernelBench::Load();
  std::byte byte = {};
  Memory memory = *device->Allocate(MemoryClass::kExperts, Bytes(8), 8);
  FileMapping mapping = *device->Map(file.fd(), Bytes(4), "f");
  for (const FaultPoint point : kAllFaultPoints) {
    FailOnly hook(point);
    device->set_fault_hook(&hook);
    EXPECT_EQ(device->Map(file.fd(), Bytes(4), "f").has_value(),
              point != FaultPoint::kMap);
    EXPECT_EQ(device->Allocate(MemoryClass::kDense, Bytes(4), 4).has_value(),
              point != FaultPoint::kAllocate);
    EXPECT_EQ(device->Read(file.fd(), 0, Bytes(1), &byte, "f").has_value(),
              point != FaultPoint::kRead);
    EXPECT_EQ(mapping.Populate(Bytes(0), Bytes(4), "f").has_value(),
              point != FaultPoint::kRead);
    EXPECT_EQ(device->Copy(key, memory, 7, {&byte, 1, 1, 1}).has_value(),
              point != FaultPoint::kCopy);
    EXPECT_EQ(device->CommitTable(key, {}, {}, Memory(), 0).has_value(),
              point != FaultPoint::kTable);
    EXPECT_EQ(device->JoinGroups(2).has_value(), point != FaultPoint::kGroup);
    bool ran = false;
    Result<std::thread> thread = device->StartDriver([&] { ran = true; });
    if (thread) thread->join();
    EXPECT_EQ(thread.has_value(), point != FaultPoint::kThread);
    EXPECT_EQ(ran, thread.has_value());
    EXPECT_EQ(device->HasLaunchFailed(), point == FaultPoint::kLaunch);
    for (const FaultPoint each : kAllFaultPoints) {
      EXPECT_EQ(hook.seen(each), each == FaultPoint::kRead ? 2 : 1)
          << Name(each);
    }
  }
  memory.Reset();
  mapping.Reset();
  device->set_fault_hook(nullptr);
  EXPECT_TRUE(device->Allocate(MemoryClass::kDense, Bytes(4), 4).has_value());
  const AllocationCounts counts = device->counts();
  EXPECT_EQ(counts.allocations, counts.frees);
  EXPECT_EQ(counts.maps, counts.unmaps);
}

TEST(CpuDevice, T4_ACopyThatDoesNotFitIsRefused) {
  const auto device = MakeCpuDevice(0, 1);
  const auto other = MakeCpuDevice(1, 1);
  const LoadKey key = testing::KernelBench::Load();
  Memory memory = *device->Allocate(MemoryClass::kExperts, Bytes(8), 8);
  const std::vector<std::byte> source(9, std::byte{7});
  const auto bytes = [&](uint64_t count) {
    return StridedRows{source.data(), 1, count, count};
  };
  EXPECT_TRUE(device->Copy(key, memory, 2, bytes(6)).has_value());
  EXPECT_EQ(memory.data()[7], std::byte{7});
  EXPECT_FALSE(device->Copy(key, memory, 3, bytes(6)).has_value());
  EXPECT_FALSE(device->Copy(key, memory, 0, bytes(9)).has_value());
  EXPECT_FALSE(device->Copy(key, memory, 9, bytes(0)).has_value());
  EXPECT_FALSE(device->Copy(key, memory, ~uint64_t{0}, bytes(9)).has_value());
  EXPECT_FALSE(other->Copy(key, memory, 0, bytes(1)).has_value());
}

TEST(CpuDevice, P3_RowsAreCopiedCompact) {
  const auto device = MakeCpuDevice(0, 1);
  Memory memory = *device->Allocate(MemoryClass::kDense, Bytes(8), 8);
  const std::string source = "abcdefghi";
  const StridedRows columns = {
      reinterpret_cast<const std::byte*>(source.data()) + 1, 3, 2, 3};
  ASSERT_TRUE(device->Copy(testing::KernelBench::Load(), memory, 1, columns)
                  .has_value());
  EXPECT_EQ(std::memcmp(memory.data() + 1, "bcefhi", 6), 0);
}

TEST(CpuDevice, T6_MemoryGoesBackToTheDeviceItCameFrom) {
  const auto device = MakeCpuDevice(0, 1);
  const auto other = MakeCpuDevice(1, 1);
  Memory memory = *device->Allocate(MemoryClass::kKv, Bytes(8), 8);
  std::byte* const data = memory.data();
  {
    // Says it is of another device, then of the right one but of another size.
    Memory foreign(other.get(), data, data, memory.size(), memory.reserved(),
                   MemoryClass::kKv);
    Memory other_size(device.get(), data, data, memory.size(), Bytes(1),
                      MemoryClass::kKv);
  }
  EXPECT_EQ(other->counts().foreign_frees, 1u);
  EXPECT_EQ(device->counts().foreign_frees, 1u);
  EXPECT_EQ(other->counts().frees + device->counts().frees, 0u);
  data[7] = std::byte{5};  // still there
  memory.Reset();
  EXPECT_EQ(device->counts().frees, 1u);
  // What was given back is not given back again.
  {
    Memory again(device.get(), data, data, Bytes(8), Bytes(8),
                 MemoryClass::kKv);
    FileMapping mapping(device.get(), data, Bytes(8));
  }
  EXPECT_EQ(device->counts().frees, 1u);
  EXPECT_EQ(device->counts().unmaps, 0u);
  EXPECT_EQ(device->counts().foreign_frees, 3u);
}

TEST(CpuDevice, RunsItsKernels) {
  const auto device = MakeCpuDevice(0, 2);
  const int32_t live = 1;
  const float a = 1, b = 2;
  float out = 0;
  device->kernels().ResidualAdd(backend::testing::KernelBench::Launch(),
                                {.rows = {.live = &live, .capacity = 1},
                                 .width = 1,
                                 .residual = &a,
                                 .addend = &b,
                                 .out = &out});
  EXPECT_EQ(out, 3.0f);
}

TEST(CpuDeviceDeathTest, MemoryMustNotOutliveItsDevice) {
  EXPECT_DEATH(
      {
        auto device = MakeCpuDevice(0, 1);
        Memory memory = *device->Allocate(MemoryClass::kKv, Bytes(1), 1);
        device.reset();
      },
      "allocations == counts_.frees");
}

}  // namespace
}  // namespace signet::backend::cpu
