#include "backend/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "backend/device.h"

namespace signet::backend {
namespace {

int SystemAdvice(Advice advice) {
  switch (advice) {
    case Advice::kNormal:
      return MADV_NORMAL;
    case Advice::kSequential:
      return MADV_SEQUENTIAL;
    case Advice::kWillNeed:
      return MADV_WILLNEED;
    case Advice::kDontNeed:
      return MADV_DONTNEED;
  }
  return MADV_NORMAL;
}

}  // namespace

Memory& Memory::operator=(Memory&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  device_ = std::exchange(other.device_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  host_ = std::exchange(other.host_, nullptr);
  size_ = std::exchange(other.size_, Bytes());
  reserved_ = std::exchange(other.reserved_, Bytes());
  memory_class_ = other.memory_class_;
  return *this;
}

void Memory::Reset() {
  if (device_ == nullptr) return;
  device_->Free(*this);
  device_ = nullptr;
  data_ = nullptr;
  host_ = nullptr;
  size_ = Bytes();
  reserved_ = Bytes();
}

FileMapping& FileMapping::operator=(FileMapping&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  device_ = std::exchange(other.device_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, Bytes());
  return *this;
}

void FileMapping::Reset() {
  if (device_ == nullptr) return;
  device_->Unmap(*this);
  device_ = nullptr;
  data_ = nullptr;
  size_ = Bytes();
}

void FileMapping::Advise(Bytes offset, Bytes size, Advice advice) const {
  if (empty() || offset >= size_) return;
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = offset.value() / page * page;
  const uint64_t end = std::min(offset + size, size_).value();
  if (end <= begin) return;
  // The address came from mmap; madvise takes it without const.
  madvise(const_cast<std::byte*>(data_) + begin, end - begin,
          SystemAdvice(advice));
}

Result<void> FileMapping::Populate(Bytes offset, Bytes size,
                                   const std::string& path) const {
  const auto truncated = [&] {
    return Fail(FailureKind::kIo, path,
                "the file could not be read where it is mapped");
  };
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = offset.value() / page * page;
  const Bytes end = offset + size;
  if (empty() || end > size_ || device_->Faulted(FaultPoint::kRead)) {
    return truncated();
  }
  if (end.value() == begin) return {};
  std::byte* address = const_cast<std::byte*>(data_) + begin;
  if (madvise(address, end.value() - begin, MADV_POPULATE_READ) == 0) return {};
  if (errno != EINVAL) return truncated();
  // Kernels before 5.14 lack the advice: touch each page.
  for (uint64_t at = begin; at < end.value(); at += page) {
    static_cast<void>(*static_cast<const volatile std::byte*>(data_ + at));
  }
  return {};
}

}  // namespace signet::backend
