#pragma once
// What devices do alike, on the host: files, drivers, and the account of what
// they lent out. Threads: any, as Device says.

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "backend/device.h"

namespace signet::backend {

class HostDevice : public Device {
 public:
  const DeviceFacts& facts() const override { return facts_; }
  Result<FileMapping> Map(int fd, Bytes size, const std::string& path) override;
  Result<void> Read(int fd, uint64_t offset, Bytes size, std::byte* to,
                    const std::string& path) override;
  /// Ranks meet in memory all of them can read: only a fault stops them.
  Result<void> JoinGroups(int num_ranks) override;
  Result<std::thread> StartDriver(std::function<void()> body) override;
  AllocationCounts counts() const override;

 protected:
  explicit HostDevice(DeviceFacts facts);
  /// Checks that everything came back: it would go to a device that is gone.
  ~HostDevice() override;

  /// Enters what Allocate is about to lend.
  void CountAllocation(const std::byte* data, Bytes reserved,
                       MemoryClass memory_class, Bytes size);
  /// True when `data` was lent and is still out: it is no longer then.
  bool TakeBack(const Device* device, const std::byte* data, Bytes size);
  /// After memory that was taken back is free.
  void CountFree(const Memory& memory);
  /// Called before a mapping goes: copies that still read it.
  virtual void AwaitCopies() {}

 private:
  void Unmap(FileMapping& mapping) override;

  const DeviceFacts facts_;
  mutable std::mutex mutex_;
  AllocationCounts counts_;                 // guarded by mutex_
  std::map<const std::byte*, Bytes> held_;  // guarded by mutex_
};

}  // namespace signet::backend
