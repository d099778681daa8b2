#pragma once
// The edge of the public API. Nothing is thrown across it: a lack of memory,
// which is all that what lies below may throw, ends here as a failure.

#include <new>
#include <string>
#include <utility>

#include "base/result.h"

namespace signet {

/// Made without taking memory: both texts fit into the strings themselves, if
/// `where` has at most 15 characters.
inline tl::unexpected<Error> OutOfMemory(const char* where) {
  return Fail(FailureKind::kMemory, where, "out of memory");
}

/// What `call` returns, a Result; kMemory when it runs out of memory.
template <typename Call>
auto AtBoundary(const char* where, Call&& call)
    -> decltype(std::forward<Call>(call)()) {
  try {
    return std::forward<Call>(call)();
  } catch (const std::bad_alloc&) {
    return OutOfMemory(where);
  }
}

}  // namespace signet
