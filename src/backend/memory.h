#pragma once
// Owned memory of a device, and the counters that prove every reservation was
// given back. Made by Device alone. Move-only; the last owner gives it back to
// the device it came from, from any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/memory_class.h"
#include "base/result.h"

namespace signet::backend {

class Device;

inline constexpr size_t kNumMemoryClasses = kAllMemoryClasses.size();

/// One reservation. Empty when default-made or moved from.
class Memory {
 public:
  Memory() = default;
  /// For devices: takes over `data`, which `device` frees, and `host`, where
  /// the host reads and writes it: `data` itself, its mirror, or null.
  Memory(Device* device, std::byte* data, std::byte* host, Bytes size,
         Bytes reserved, MemoryClass memory_class)
      : device_(device),
        data_(data),
        host_(host),
        size_(size),
        reserved_(reserved),
        memory_class_(memory_class) {}
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept;
  ~Memory() { Reset(); }

  /// Gives the memory back; idempotent.
  void Reset();

  bool empty() const { return device_ == nullptr; }
  Device* device() const { return device_; }
  std::byte* data() const { return data_; }  // where kernels address it
  std::byte* host() const { return host_; }
  Bytes size() const { return size_; }          // as asked for
  Bytes reserved() const { return reserved_; }  // as the system gave it
  MemoryClass memory_class() const { return memory_class_; }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  std::byte* host_ = nullptr;
  Bytes size_;
  Bytes reserved_;
  MemoryClass memory_class_ = MemoryClass::kWorkspace;
};

/// What the pages of a mapping will be used for next.
enum class Advice { kNormal, kSequential, kWillNeed, kDontNeed };

/// A read-only, private mapping of a file from its start.
class FileMapping {
 public:
  FileMapping() = default;
  /// For devices: takes over the mapping, which `device` unmaps.
  FileMapping(Device* device, const std::byte* data, Bytes size)
      : device_(device), data_(data), size_(size) {}
  FileMapping(FileMapping&& other) noexcept { *this = std::move(other); }
  FileMapping& operator=(FileMapping&& other) noexcept;
  ~FileMapping() { Reset(); }

  /// Unmaps; idempotent.
  void Reset();

  bool empty() const { return device_ == nullptr; }
  Device* device() const { return device_; }
  const std::byte* data() const { return data_; }
  Bytes size() const { return size_; }
  std::span<const std::byte> bytes() const {
    return {data_, static_cast<size_t>(size_.value())};
  }
  /// A hint for the pages that hold [offset, offset + size); never fails.
  void Advise(Bytes offset, Bytes size, Advice advice) const;
  /// Brings the pages of [offset, offset + size) in: a read, and a fault point
  /// of the device. Failure kIo when the file no longer has them. `path` is for
  /// the message.
  Result<void> Populate(Bytes offset, Bytes size,
                        const std::string& path) const;

 private:
  Device* device_ = nullptr;
  const std::byte* data_ = nullptr;
  Bytes size_;
};

/// What a device handed out since it was made, and what is still out.
struct AllocationCounts {
  uint64_t allocations = 0;
  uint64_t frees = 0;
  uint64_t maps = 0;
  uint64_t unmaps = 0;
  /// Memory and mappings it was asked to give back but had not handed out, or
  /// no longer: nothing was freed (contract T6).
  uint64_t foreign_frees = 0;
  std::array<Bytes, kNumMemoryClasses> live = {};  // by class, as asked for
  Bytes mapped;                                    // live mappings

  Bytes LiveBytes(MemoryClass memory_class) const {
    return live[static_cast<size_t>(memory_class)];
  }
  friend bool operator==(const AllocationCounts&,
                         const AllocationCounts&) = default;
};

}  // namespace signet::backend
