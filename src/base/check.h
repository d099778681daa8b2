#pragma once
// "We are wrong": an invariant of ours is broken. Prints the place and the
// condition and aborts. Never for input, never for the world's failures.

namespace signet::internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* what);
}  // namespace signet::internal

#define SIGNET_CHECK(condition) \
  if (!(condition))             \
  ::signet::internal::CheckFailed(__FILE__, __LINE__, #condition)
