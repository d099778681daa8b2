#pragma once
// A device that is another one but for what a subclass changes: what it lends
// out belongs to the device inside, which counts it and takes it back. Threads:
// as the device inside.

#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "backend/device.h"
#include "base/check.h"

namespace signet::backend {

class ForwardingDevice : public Device {
 public:
  /// `inner` outlives this.
  explicit ForwardingDevice(Device& inner) : inner_(inner) {}

  const DeviceFacts& facts() const override { return inner_.facts(); }
  Bytes FreeMemory() const override { return inner_.FreeMemory(); }
  Result<Memory> Allocate(MemoryClass memory_class, Bytes size,
                          uint64_t alignment) override {
    return inner_.Allocate(memory_class, size, alignment);
  }
  Result<FileMapping> Map(int fd, Bytes size,
                          const std::string& path) override {
    return inner_.Map(fd, size, path);
  }
  Result<void> Read(int fd, uint64_t offset, Bytes size, std::byte* to,
                    const std::string& path) override {
    return inner_.Read(fd, offset, size, to, path);
  }
  Result<void> Copy(LoadKey key, const Memory& to, uint64_t offset,
                    const StridedRows& from) override {
    return inner_.Copy(key, to, offset, from);
  }
  Result<void> CommitTable(LoadKey key,
                           std::span<const ExpertPointers> table) override {
    return inner_.CommitTable(key, table);
  }
  Result<void> JoinGroups(int num_ranks) override {
    return inner_.JoinGroups(num_ranks);
  }
  Result<std::thread> StartDriver(std::function<void()> body) override {
    return inner_.StartDriver(std::move(body));
  }
  bool HasLaunchFailed() override { return inner_.HasLaunchFailed(); }
  AllocationCounts counts() const override { return inner_.counts(); }
  Kernels& kernels() override { return inner_.kernels(); }

 private:
  // A subclass that lends memory of its own overrides these.
  void Free(Memory&) override { SIGNET_CHECK(false); }
  void Unmap(FileMapping&) override { SIGNET_CHECK(false); }

  Device& inner_;
};

}  // namespace signet::backend
