#include "backend/host_device.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace signet::backend {
namespace {

std::string SystemError(int code) {
  char buffer[256] = {};
  return strerror_r(code, buffer, sizeof(buffer));
}

}  // namespace

HostDevice::HostDevice(DeviceFacts facts) : facts_(std::move(facts)) {}

HostDevice::~HostDevice() {
  SIGNET_CHECK(counts_.allocations == counts_.frees);
  SIGNET_CHECK(counts_.maps == counts_.unmaps);
}

Result<FileMapping> HostDevice::Map(int fd, Bytes size,
                                    const std::string& path) {
  if (size == Bytes()) {
    return Fail(FailureKind::kIo, path, "cannot map an empty file");
  }
  void* mapped = MAP_FAILED;
  int code = EIO;
  if (!Faulted(FaultPoint::kMap)) {
    mapped = mmap(nullptr, size.value(), PROT_READ, MAP_PRIVATE, fd, 0);
    code = errno;
  }
  if (mapped == MAP_FAILED) {
    return Fail(FailureKind::kIo, path,
                fmt::format("cannot map file: {}", SystemError(code)));
  }
  const std::lock_guard lock(mutex_);
  try {
    held_.emplace(static_cast<const std::byte*>(mapped), size);
  } catch (const std::bad_alloc&) {
    munmap(mapped, size.value());
    throw;
  }
  ++counts_.maps;
  counts_.mapped += size;
  return FileMapping(this, static_cast<const std::byte*>(mapped), size);
}

Result<void> HostDevice::Read(int fd, uint64_t offset, Bytes size,
                              std::byte* to, const std::string& path) {
  const auto fail = [&](const std::string& why) {
    return Fail(FailureKind::kIo, path,
                fmt::format("cannot read {} at offset {}: {}", HumanBytes(size),
                            offset, why));
  };
  if (Faulted(FaultPoint::kRead)) return fail(SystemError(EIO));
  uint64_t done = 0;
  while (done < size.value()) {
    const ssize_t count = pread(fd, to + done, size.value() - done,
                                static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(SystemError(errno));
    if (count == 0) return fail("the file ends before");
    done += static_cast<uint64_t>(count);
  }
  return {};
}

Result<void> HostDevice::JoinGroups(int num_ranks) {
  if (!Faulted(FaultPoint::kGroup)) return {};
  return Fail(FailureKind::kDevice, facts_.identity,
              fmt::format("cannot join the groups of {} ranks", num_ranks));
}

Result<std::thread> HostDevice::StartDriver(std::function<void()> body) {
  std::string why = "injected";
  if (!Faulted(FaultPoint::kThread)) {
    try {
      return std::thread(std::move(body));
    } catch (const std::system_error& error) {
      why = error.what();
    }
  }
  return Fail(FailureKind::kDevice, facts_.identity,
              fmt::format("cannot start a thread: {}", why));
}

AllocationCounts HostDevice::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void HostDevice::CountAllocation(const std::byte* data, Bytes reserved,
                                 MemoryClass memory_class, Bytes size) {
  const std::lock_guard lock(mutex_);
  held_.emplace(data, reserved);
  ++counts_.allocations;
  counts_.live[static_cast<size_t>(memory_class)] += size;
}

bool HostDevice::TakeBack(const Device* device, const std::byte* data,
                          Bytes size) {
  const std::lock_guard lock(mutex_);
  const auto held = held_.find(data);
  if (device == this && held != held_.end() && held->second == size) {
    held_.erase(held);
    return true;
  }
  ++counts_.foreign_frees;
  return false;
}

void HostDevice::CountFree(const Memory& memory) {
  const std::lock_guard lock(mutex_);
  ++counts_.frees;
  Bytes& live = counts_.live[static_cast<size_t>(memory.memory_class())];
  live = live - memory.size();
}

void HostDevice::Unmap(FileMapping& mapping) {
  if (!TakeBack(mapping.device(), mapping.data(), mapping.size())) return;
  AwaitCopies();
  SIGNET_CHECK(munmap(const_cast<std::byte*>(mapping.data()),
                      mapping.size().value()) == 0);
  const std::lock_guard lock(mutex_);
  ++counts_.unmaps;
  counts_.mapped = counts_.mapped - mapping.size();
}

}  // namespace signet::backend
