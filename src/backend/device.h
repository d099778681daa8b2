#pragma once
// A device as the rooms above see it: facts, reservations, file mappings and
// kernels. Every reservation and mapping passes through the device that made
// it, which counts it and frees it (contract T6); the faults of contract T5 are
// injected there. One thread at a time drives a Device; its counters and the
// release of memory may be used from any thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "backend/kernels.h"
#include "backend/memory.h"
#include "base/bytes.h"
#include "base/result.h"

namespace signet::backend {

/// Where an injected fault can strike.
enum class FaultPoint { kMap, kAllocate, kRead };
inline constexpr int kNumFaultPoints = 3;

constexpr std::string_view Name(FaultPoint point) {
  switch (point) {
    case FaultPoint::kMap:
      return "map";
    case FaultPoint::kAllocate:
      return "allocate";
    case FaultPoint::kRead:
      return "read";
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

/// What is true of a device as long as the process lives.
struct DeviceFacts {
  std::string backend;  // "cpu"
  int ordinal = 0;
  std::string identity;      // tells physical devices apart (contract M4)
  std::string architecture;  // "AVX3", "sm_90"
  Bytes memory;              // in all
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

  /// Reserves `size` bytes of zeros. `alignment` is a power of two. Failure:
  /// kMemory, naming class and size. The memory must not outlive the device.
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

  virtual AllocationCounts counts() const = 0;
  virtual Kernels& kernels() = 0;

  /// Null: no faults. `hook` must outlive its use.
  virtual void set_fault_hook(FaultHook* hook) = 0;

 protected:
  Device() = default;

 private:
  friend class Memory;
  friend class FileMapping;
  virtual void Free(Memory& memory) = 0;
  virtual void Unmap(FileMapping& mapping) = 0;
};

}  // namespace signet::backend
