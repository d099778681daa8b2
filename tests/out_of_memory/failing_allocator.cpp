#include "out_of_memory/failing_allocator.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

using signet::testing::kNoAllocation;

std::atomic<int64_t> asked{0};
std::atomic<int64_t> first_failed{kNoAllocation};
std::atomic<int64_t> last_failed{kNoAllocation};

void Ask() {
  const int64_t number = asked.fetch_add(1, std::memory_order_relaxed);
  if (number >= first_failed.load(std::memory_order_relaxed) &&
      number <= last_failed.load(std::memory_order_relaxed)) {
    throw std::bad_alloc();
  }
}

void* Take(std::size_t size) {
  Ask();
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* TakeAligned(std::size_t size, std::align_val_t alignment) {
  Ask();
  const auto unit = static_cast<std::size_t>(alignment);
  void* memory = std::aligned_alloc(unit, (size + unit - 1) / unit * unit);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

namespace signet::testing {

AllocationWatch::AllocationWatch(const AllocationFault& fault) {
  last_failed = fault.all_after ? kNoAllocation : fault.first;
  first_failed = fault.first;
  asked = 0;
}

AllocationWatch::~AllocationWatch() { first_failed = kNoAllocation; }

int64_t AllocationWatch::count() const {
  return asked.load(std::memory_order_relaxed);
}

}  // namespace signet::testing

// The array forms call these; so would the nothrow ones, but a sanitizer brings
// its own.
void* operator new(std::size_t size) { return Take(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return TakeAligned(size, alignment);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return Take(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
