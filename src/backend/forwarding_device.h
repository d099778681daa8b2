#pragma once
// A device that is another one but for what a subclass changes: what it lends
// out belongs to the device inside, which counts it and takes it back. Threads:
// as the device inside.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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
  Result<void> Settle(LoadKey key, const CopyProgress& progress) override {
    return inner_.Settle(key, progress);
  }
  Result<CommittedTable> CommitTable(LoadKey key,
                                     std::span<const ExpertPointers> experts,
                                     std::span<const int32_t> global_to_local,
                                     const Memory& memory,
                                     uint64_t offset) override {
    return inner_.CommitTable(key, experts, global_to_local, memory, offset);
  }
  Result<void> JoinGroups(int num_ranks) override {
    return inner_.JoinGroups(num_ranks);
  }
  Result<std::thread> StartDriver(std::function<void()> body) override {
    return inner_.StartDriver(std::move(body));
  }
  void Feed(LaunchKey key, std::span<const MirrorPart> parts) override {
    inner_.Feed(key, parts);
  }
  void Fetch(LaunchKey key, std::span<const MirrorPart> parts) override {
    inner_.Fetch(key, parts);
  }
  Result<std::unique_ptr<Replay>> Record(
      LaunchKey key, const std::function<void()>& enqueue) override {
    return inner_.Record(key, enqueue);
  }
  Result<void> Wait(LaunchKey key) override { return inner_.Wait(key); }
  Result<std::vector<double>> Time(
      LaunchKey key, std::span<const std::function<void()>> launches) override {
    return inner_.Time(key, launches);
  }
  Result<void> Download(const std::byte* from, Bytes size,
                        std::byte* to) override {
    return inner_.Download(from, size, to);
  }
  Result<void> Fill(Memory& memory, std::byte value) override {
    return inner_.Fill(memory, value);
  }
  bool HasLaunchFailed() override { return inner_.HasLaunchFailed(); }
  AllocationCounts counts() const override { return inner_.counts(); }
  Kernels& kernels() override { return inner_.kernels(); }
  SideLane* side_lane(int64_t capacity) override {
    return inner_.side_lane(capacity);
  }

 private:
  // A subclass that lends memory of its own overrides these.
  void Free(Memory&) override { SIGNET_CHECK(false); }
  void Unmap(FileMapping&) override { SIGNET_CHECK(false); }

  Device& inner_;
};

}  // namespace signet::backend
