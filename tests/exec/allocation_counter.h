#pragma once
// Counts what this test program takes from the heap through operator new, on
// all threads.

#include <cstdint>

namespace signet::testing {

/// Since the program began.
uint64_t HeapAllocations();

}  // namespace signet::testing
