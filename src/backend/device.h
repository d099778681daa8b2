#pragma once
// A device as the rooms above see it: facts, reservations, file mappings and
// kernels. Every reservation and mapping passes through the device that made
// it, which counts it and frees it (contract T6); the faults of contract T5 are
// injected here, so that what is written above is covered without being told.
// One thread at a time drives a Device; its counters and the
// release of memory may be used from any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backend/kernels.h"
#include "backend/launch_key.h"
#include "backend/memory.h"
#include "backend/side_lane.h"
#include "backend/views.h"
#include "base/bytes.h"
#include "base/result.h"

namespace signet::backend {

/// Where an injected fault can strike.
enum class FaultPoint {
  kMap,
  kAllocate,
  kRead,
  kCopy,    // weights into a rank's own memory
  kTable,   // the commit of a rank's expert table
  kGroup,   // joining the groups of a mesh
  kThread,  // the start of a rank's driver
  kLaunch,  // a launch, and the work before it
};
inline constexpr std::array kAllFaultPoints = {
    FaultPoint::kMap,    FaultPoint::kAllocate, FaultPoint::kRead,
    FaultPoint::kCopy,   FaultPoint::kTable,    FaultPoint::kGroup,
    FaultPoint::kThread, FaultPoint::kLaunch};

constexpr std::string_view Name(FaultPoint point) {
  switch (point) {
    case FaultPoint::kMap:
      return "map";
    case FaultPoint::kAllocate:
      return "allocate";
    case FaultPoint::kRead:
      return "read";
    case FaultPoint::kCopy:
      return "copy";
    case FaultPoint::kTable:
      return "table";
    case FaultPoint::kGroup:
      return "group";
    case FaultPoint::kThread:
      return "thread";
    case FaultPoint::kLaunch:
      return "launch";
  }
  return "";
}

/// Decides at each fault point whether the operation is to fail as if the world
/// had refused it. Called on the thread that asks for the operation.
class FaultHook {
 public:
  virtual ~FaultHook() = default;
  virtual bool ShouldFail(FaultPoint point) = 0;
};

/// Rows of host memory, `stride_bytes` apart.
struct StridedRows {
  const std::byte* data;
  uint64_t rows;
  uint64_t row_bytes;
  uint64_t stride_bytes;
  /// The open file that `data` maps, and where in it `data` begins; -1 for
  /// memory of no file. A device may read the file instead.
  int fd = -1;
  uint64_t file_offset = 0;
};

/// An expert table where kernels read it.
struct CommittedTable {
  const ExpertPointers* experts = nullptr;   // [E_r]
  const int32_t* global_to_local = nullptr;  // [E]
  ExpertLayout layout;                       // where kernels can use it
};

/// Called with the bytes that Copy has brought over so far.
using CopyProgress = std::function<void(Bytes)>;

/// A part of a memory and of its mirror on the host.
struct MirrorPart {
  std::byte* device = nullptr;
  std::byte* host = nullptr;
  uint64_t bytes = 0;
};

/// Launches recorded once and replayed as one.
class Replay {
 public:
  virtual ~Replay() = default;
  virtual void Launch(LaunchKey) = 0;
};

inline constexpr size_t kMaxMirrorParts = 8;

/// What is true of a device as long as the process lives.
struct DeviceFacts {
  std::string backend;  // "cpu"
  int ordinal = 0;
  std::string identity;      // tells physical devices apart (contract M4)
  std::string architecture;  // "AVX3", "sm_90"
  Bytes memory;              // in all
  std::string model;         // "NVIDIA H200"; empty where nobody says
  std::string pci;           // "0000:3b:00.0"; empty for a CPU
};

class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual const DeviceFacts& facts() const = 0;
  /// What could be reserved now: what is free, within every limit set on this
  /// process.
  virtual Bytes FreeMemory() const = 0;

  /// Reserves `size` bytes of zeros. `alignment` is a power of two. The host
  /// reaches memory for io and tables, through a mirror where kernels have
  /// memory of their own. Failure: kMemory, naming class and size. The memory
  /// must not outlive the device.
  virtual Result<Memory> Allocate(MemoryClass memory_class, Bytes size,
                                  uint64_t alignment) = 0;
  /// Maps the first `size` bytes of an open file, read-only; the descriptor may
  /// be closed afterwards. `path` is for messages. Failure: kIo. The mapping
  /// must not outlive the device.
  virtual Result<FileMapping> Map(int fd, Bytes size,
                                  const std::string& path) = 0;
  /// Reads exactly `size` bytes at `offset` of an open file into `to`. Failure:
  /// kIo, also when the file ends before.
  virtual Result<void> Read(int fd, uint64_t offset, Bytes size, std::byte* to,
                            const std::string& path) = 0;

  /// Copies weights to `offset` in `to`, compact; `to` is of this device and
  /// holds them. May return before they are there: Settle waits. `from` must
  /// last until then. Failure: kDevice, kIo.
  virtual Result<void> Copy(LoadKey, const Memory& to, uint64_t offset,
                            const StridedRows& from) = 0;
  /// Returns when everything copied is in place, or the first failure of a
  /// copy; `progress`, which may be empty, is called on this thread meanwhile.
  virtual Result<void> Settle(LoadKey, const CopyProgress& progress) = 0;
  /// Makes a rank's expert table, checked before, what kernels may read: once
  /// (contract T4). A device with memory of its own puts it at `offset` of
  /// `memory`; else kernels read the given memory, which outlives their use.
  /// Failure: kDevice.
  virtual Result<CommittedTable> CommitTable(
      LoadKey, std::span<const ExpertPointers> experts,
      std::span<const int32_t> global_to_local, const Memory& memory,
      uint64_t offset) = 0;

  /// Readies the device to meet those of the other ranks. Failure: kDevice.
  virtual Result<void> JoinGroups(int num_ranks) = 0;
  /// Starts the thread that drives this device. Failure: kDevice.
  virtual Result<std::thread> StartDriver(std::function<void()> body) = 0;
  /// Launches the copies from mirrors to what kernels read, and back. At most
  /// kMaxMirrorParts. Nothing where the host writes the memory itself.
  virtual void Feed(LaunchKey, std::span<const MirrorPart> parts) = 0;
  virtual void Fetch(LaunchKey, std::span<const MirrorPart> parts) = 0;
  /// Records what `enqueue` launches instead of running it; null where there
  /// is nothing to gain. Failure: kDevice.
  virtual Result<std::unique_ptr<Replay>> Record(
      LaunchKey, const std::function<void()>& enqueue) = 0;
  /// Returns when everything launched is done. Failure: kDevice.
  virtual Result<void> Wait(LaunchKey) = 0;
  /// Runs the launches one after another and returns the seconds of each,
  /// without what the host needs to launch them. Failure: kDevice.
  virtual Result<std::vector<double>> Time(
      LaunchKey, std::span<const std::function<void()>> launches) = 0;
  /// Copies memory of this device to the host, for observers and tests, after
  /// what was launched before. Failure: kDevice.
  virtual Result<void> Download(const std::byte* from, Bytes size,
                                std::byte* to) = 0;
  /// Sets every byte, for tests of dirty memory (X4). Failure: kDevice.
  virtual Result<void> Fill(Memory& memory, std::byte value) = 0;
  /// Whether what was launched has failed: asked after every launch, so that a
  /// rank goes no further. Costs next to nothing.
  virtual bool HasLaunchFailed() = 0;

  virtual AllocationCounts counts() const = 0;
  virtual Kernels& kernels() = 0;
  /// Where launches of recorded programs of `capacity` rows may overlap those
  /// of kernels(); null where they would gain nothing.
  virtual SideLane* side_lane(int64_t capacity) = 0;

  /// Null: no faults. `hook` must outlive its use.
  void set_fault_hook(FaultHook* hook) { hook_ = hook; }

 protected:
  Device() = default;
  /// Every operation above that can fail asks this first.
  bool Faulted(FaultPoint point) {
    return hook_ != nullptr && hook_->ShouldFail(point);
  }

 private:
  friend class Memory;
  friend class FileMapping;
  virtual void Free(Memory& memory) = 0;
  virtual void Unmap(FileMapping& mapping) = 0;
  FaultHook* hook_ = nullptr;
};

}  // namespace signet::backend
