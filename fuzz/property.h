#pragma once
// What a fuzz target says of its input beside "no crash".

#include <cstdio>
#include <cstdlib>

/// Ends the program, which is how a finding is reported.
#define FUZZ_REQUIRE(condition)                                     \
  if (!(condition)) {                                               \
    std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, \
                 #condition);                                       \
    std::abort();                                                   \
  }
