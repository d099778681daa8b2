#include "collective/transport.h"

#include <algorithm>
#include <cstring>

#include "topology/block.h"

namespace signet::collective {
namespace {

// From here on a member's slice is worth a second rendezvous.
constexpr int64_t kTwoShotElements = 16384;

}  // namespace

Transport ChooseReduction(int members, int64_t elements) {
  return members > 2 && elements >= kTwoShotElements ? Transport::kTwoShot
                                                     : Transport::kOneShot;
}

int64_t LargestOneShot(int members, int64_t elements) {
  return members > 2 ? std::min(elements, kTwoShotElements) : elements;
}

void SpreadBlock(const std::byte* x, const GatherArgs& args,
                 const topology::Block& block, std::byte* out) {
  const auto bytes = static_cast<size_t>(block.size * args.element_bytes);
  if (bytes == 0) return;
  for (int64_t row = 0; row < args.rows; ++row) {
    std::memcpy(out + (row * args.columns + block.first) * args.element_bytes,
                x, bytes);
    x += bytes;
  }
}

}  // namespace signet::collective
