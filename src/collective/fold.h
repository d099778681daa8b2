#pragma once
// The canonical fold (contract N2): the binary tree over the members in group
// order, in fp32. Each inner node splits its n members into the largest power
// of two under n and the rest, so that the tree is balanced for a power of two
// and one fixed order for every count. Pure; any thread.

#include <cstdint>
#include <span>

namespace signet::collective {

/// out[i] = the tree over sources[0][i] ... sources[N-1][i] for i in
/// [begin, end). `out` is apart from every source; N >= 1.
void Fold(std::span<const float* const> sources, int64_t begin, int64_t end,
          float* out);

}  // namespace signet::collective
