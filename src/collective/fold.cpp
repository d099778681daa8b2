#include "collective/fold.h"

#include <algorithm>
#include <bit>

namespace signet::collective {
namespace {

// Blocks small enough that a level of the tree stays in the first cache.
constexpr int64_t kBlock = 256;

void FoldBlock(std::span<const float* const> sources, int64_t first,
               int64_t count, float* out) {
  if (sources.size() == 1) {
    std::copy_n(sources[0] + first, count, out);
    return;
  }
  const size_t half = std::bit_floor(sources.size() - 1);
  const std::span<const float* const> left = sources.first(half);
  const std::span<const float* const> right = sources.subspan(half);
  const float* a = out;
  if (left.size() == 1) {
    a = left[0] + first;
  } else {
    FoldBlock(left, first, count, out);
  }
  float sums[kBlock];
  const float* b = sums;
  if (right.size() == 1) {
    b = right[0] + first;
  } else {
    FoldBlock(right, first, count, sums);
  }
  for (int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

}  // namespace

void Fold(std::span<const float* const> sources, int64_t begin, int64_t end,
          float* out) {
  for (int64_t first = begin; first < end; first += kBlock) {
    FoldBlock(sources, first, std::min(kBlock, end - first), out + first);
  }
}

}  // namespace signet::collective
