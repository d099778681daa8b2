#pragma once
// What a member of a group holds of a count that is cut along an axis. Pure.

#include <algorithm>
#include <cstdint>

namespace signet::topology {

struct Block {
  int64_t first = 0;
  int64_t size = 0;
};

/// Blocks of ceil(total / count); the last ones are shorter or empty (contract
/// P3b).
constexpr Block BlockOf(int64_t total, int64_t count, int64_t index) {
  const int64_t block = (total + count - 1) / count;
  const int64_t first = std::min(total, index * block);
  return {first, std::min(block, total - first)};
}

}  // namespace signet::topology
