#pragma once
// Counts what this test program takes from the heap through operator new, on
// all threads, and makes it fail where a test wants it to.

#include <cstdint>
#include <limits>

namespace signet::testing {

inline constexpr int64_t kNoAllocation = std::numeric_limits<int64_t>::max();

/// Which allocations fail: the one that is taken after `first` others, or that
/// and all that follow.
struct AllocationFault {
  int64_t first = kNoAllocation;
  bool all_after = false;
};

/// While it lives, allocations are counted, and those of `fault` fail.
class AllocationWatch {
 public:
  explicit AllocationWatch(const AllocationFault& fault = {});
  ~AllocationWatch();
  AllocationWatch(const AllocationWatch&) = delete;
  AllocationWatch& operator=(const AllocationWatch&) = delete;

  /// Asked for so far, failed ones too.
  int64_t count() const;
};

}  // namespace signet::testing
