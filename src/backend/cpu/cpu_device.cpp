#include "backend/cpu/cpu_device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "backend/cpu/cpu_kernels.h"
#include "backend/cpu/memory_limits.h"
#include "backend/cpu/system_file.h"
#include "backend/cpu/thread_pool.h"
#include "backend/host_device.h"
#include "base/check.h"

namespace signet::backend::cpu {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;

uint64_t PageSize() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

std::string FirstWord(const char* path) {
  std::string text = SystemFile(path);
  text.resize(std::min(text.find_first_of(" \t\n"), text.size()));
  return text;
}

// The machine's own id; a container without one has the id of its boot.
std::string MachineId() {
  std::string id = FirstWord("/etc/machine-id");
  if (id.empty()) id = FirstWord("/proc/sys/kernel/random/boot_id");
  return id.empty() ? "unknown" : id;
}

// Zero pages at a multiple of `alignment`; null if the system refuses.
std::byte* MapZeros(uint64_t size, uint64_t alignment) {
  const uint64_t slack = alignment > PageSize() ? alignment : 0;
  const Bytes span = Bytes(size) + Bytes(slack);
  if (span.overflowed()) return nullptr;
  void* mapped = mmap(nullptr, span.value(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(mapped);
  if (slack == 0) return begin;
  const uint64_t address = reinterpret_cast<uint64_t>(begin);
  const uint64_t before = (alignment - address % alignment) % alignment;
  if (before != 0) munmap(begin, before);
  if (before != slack) munmap(begin + before + size, slack - before);
  return begin + before;
}

class CpuDevice final : public HostDevice {
 public:
  CpuDevice(int ordinal, int num_threads)
      : HostDevice(CpuFacts(ordinal)),
        pool_(num_threads),
        kernels_(MakeCpuKernels(&pool_)) {}

  Bytes FreeMemory() const override {
    return AvailableMemory(SystemRoots(), ProcessLimits::OfThisProcess());
  }

  Result<Memory> Allocate(MemoryClass memory_class, Bytes size,
                          uint64_t alignment) override {
    const auto refuse = [&] {
      return Fail(FailureKind::kMemory, facts().identity,
                  fmt::format("cannot reserve memory for {}: {}",
                              Name(memory_class), HumanBytes(size)));
    };
    const bool huge = size >= Bytes(2 * kHugePage);
    const uint64_t unit =
        std::max({alignment, PageSize(), huge ? kHugePage : uint64_t{0}});
    const Bytes reserved = std::max(size, Bytes(1)).AlignUp(PageSize());
    if (Faulted(FaultPoint::kAllocate) || reserved.overflowed()) {
      return refuse();
    }
    std::byte* data = MapZeros(reserved.value(), unit);
    if (data == nullptr) return refuse();
    // A hint: fewer translation misses over large arenas.
    if (huge) madvise(data, reserved.value(), MADV_HUGEPAGE);
    try {
      CountAllocation(data, reserved, memory_class, size);
    } catch (const std::bad_alloc&) {
      munmap(data, reserved.value());
      return refuse();
    }
    return Memory(this, data, data, size, reserved, memory_class);
  }

  Result<void> Copy(LoadKey, const Memory& to, uint64_t offset,
                    const StridedRows& from) override {
    const Bytes size = Bytes(from.rows) * from.row_bytes;
    const bool fits = to.device() == this && !size.overflowed() &&
                      offset <= to.size().value() &&
                      size.value() <= to.size().value() - offset;
    if (!fits || Faulted(FaultPoint::kCopy)) {
      return Fail(FailureKind::kDevice, facts().identity,
                  fmt::format("cannot copy {} to memory for {}",
                              HumanBytes(size), Name(to.memory_class())));
    }
    std::byte* target = to.data() + offset;
    if (from.stride_bytes == from.row_bytes) {
      std::copy_n(from.data, size.value(), target);
      return {};
    }
    for (uint64_t row = 0; row < from.rows; ++row) {
      target = std::copy_n(from.data + row * from.stride_bytes, from.row_bytes,
                           target);
    }
    return {};
  }

  Result<void> Settle(LoadKey, const CopyProgress&) override { return {}; }

  // Kernels read the host's table as it is.
  Result<CommittedTable> CommitTable(LoadKey,
                                     std::span<const ExpertPointers> experts,
                                     std::span<const int32_t> global_to_local,
                                     const Memory&, uint64_t) override {
    if (!Faulted(FaultPoint::kTable)) {
      return CommittedTable{experts.data(), global_to_local.data()};
    }
    return Fail(FailureKind::kDevice, facts().identity,
                "cannot commit a table of experts");
  }

  // What the host writes, kernels read as it is, when they are launched.
  void Feed(LaunchKey, std::span<const MirrorPart>) override {}
  void Fetch(LaunchKey, std::span<const MirrorPart>) override {}
  Result<void> Wait(LaunchKey) override { return {}; }
  Result<std::unique_ptr<Replay>> Record(
      LaunchKey, const std::function<void()>&) override {
    return std::unique_ptr<Replay>();
  }
  Result<std::vector<double>> Time(
      LaunchKey, std::span<const std::function<void()>> launches) override {
    std::vector<double> seconds;
    for (const std::function<void()>& launch : launches) {
      const auto start = std::chrono::steady_clock::now();
      launch();
      seconds.push_back(std::chrono::duration<double>(
                            std::chrono::steady_clock::now() - start)
                            .count());
    }
    return seconds;
  }
  Result<void> Download(const std::byte* from, Bytes size,
                        std::byte* to) override {
    std::copy_n(from, size.value(), to);
    return {};
  }
  Result<void> Fill(Memory& memory, std::byte value) override {
    std::fill_n(memory.data(), memory.size().value(), value);
    return {};
  }

  // A kernel on the CPU ends as it should, or the process does.
  bool HasLaunchFailed() override { return Faulted(FaultPoint::kLaunch); }

  Kernels& kernels() override { return *kernels_; }
  SideLane* side_lane(int64_t) override { return nullptr; }

 private:
  void Free(Memory& memory) override {
    if (!TakeBack(memory.device(), memory.data(), memory.reserved())) return;
    SIGNET_CHECK(munmap(memory.data(), memory.reserved().value()) == 0);
    CountFree(memory);
  }

  ThreadPool pool_;
  std::unique_ptr<Kernels> kernels_;
};

}  // namespace

DeviceFacts CpuFacts(int ordinal) {
  return {.backend = "cpu",
          .ordinal = ordinal,
          .identity = fmt::format("{}/cpu:{}", MachineId(), ordinal),
          .architecture = InstructionSet(),
          .memory = TotalMemory()};
}

std::unique_ptr<Device> MakeCpuDevice(int ordinal, int num_threads) {
  return std::make_unique<CpuDevice>(ordinal, num_threads);
}

}  // namespace signet::backend::cpu
