#include "collective/staging.h"

#include <algorithm>

#include "collective/transport.h"

namespace signet::collective {
namespace {

// What arrives from the others during a reduction of up to `elements`.
uint64_t ReductionElements(int members, int64_t elements) {
  if (elements == 0) return 0;
  const auto count = static_cast<uint64_t>(members);
  const auto most = static_cast<uint64_t>(elements);
  const auto whole = static_cast<uint64_t>(LargestOneShot(members, elements));
  return std::max(count * whole, most + count);
}

}  // namespace

Bytes GroupStaging(int members, const MeetingSizes& sizes) {
  const Bytes reduction =
      Bytes(sizeof(float)) * ReductionElements(members, sizes.reduce_elements);
  return std::max(reduction, Bytes(sizes.gather_bytes))
      .AlignUp(kStagingAlignment);
}

Bytes RankStaging(const topology::Mesh& mesh, const AxisSizes& sizes) {
  Bytes total;
  for (const topology::Axis axis : topology::kAllAxes) {
    if (mesh.size(axis) == 1) continue;
    total += GroupStaging(static_cast<int>(mesh.size(axis)),
                          sizes[static_cast<size_t>(axis)]);
  }
  return total;
}

}  // namespace signet::collective
