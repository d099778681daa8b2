#pragma once
// The memory a session's programs run in: one reservation a class on one
// device, made for one generation of weights. Zeroed when made. One owner; the
// memory goes back to its device with it.

#include <map>
#include <span>
#include <vector>

#include "backend/device.h"
#include "backend/memory.h"
#include "base/bytes.h"
#include "base/memory_class.h"
#include "base/result.h"

namespace signet::exec {

class Arenas {
 public:
  /// Failure kMemory names the class that could not be had; nothing is kept
  /// then. `device` must outlive the arenas.
  static Result<Arenas> Make(backend::Device* device,
                             const std::map<MemoryClass, Bytes>& sizes,
                             uint64_t generation);

  backend::Device* device() const { return device_; }
  uint64_t generation() const { return generation_; }
  /// Where kernels address a class; null for one without memory.
  std::byte* data(MemoryClass memory_class) const;
  /// Where the host does: its mirror on a device with memory of its own, and
  /// null for what has none there.
  std::byte* host(MemoryClass memory_class) const;
  /// What a class holds now, for observers: its memory, or a copy of it that
  /// lasts until the next look. Failure: kDevice.
  Result<std::span<const std::byte>> Look(MemoryClass memory_class) const;
  Bytes size(MemoryClass memory_class) const;
  /// Sets every byte of a class, for tests of dirty memory (X4).
  Result<void> Fill(MemoryClass memory_class, std::byte value);

 private:
  Arenas(backend::Device* device, uint64_t generation)
      : device_(device), generation_(generation) {}
  backend::Device* device_;
  uint64_t generation_;
  std::map<MemoryClass, backend::Memory> memory_;
  mutable std::map<MemoryClass, std::vector<std::byte>> looks_;
};

}  // namespace signet::exec
