#pragma once
// How the bytes of a meeting travel, and the one table of which way a size
// uses. None changes a bit. Pure; any thread.

#include <cstddef>
#include <cstdint>

#include "collective/communicator.h"
#include "topology/block.h"

namespace signet::collective {

enum class Transport {
  kOneShot,  // every member takes everything from its peers
  kTwoShot,  // every member works on its slice and hands it to all
  kGather,   // every member copies all parts, then works on its copies
};

/// Small reductions are bound by the rendezvous, large ones by the reading.
/// Gathers and broadcasts read every byte once whatever the transport, so they
/// take one shot.
Transport ChooseReduction(int members, int64_t elements);
/// The most elements that a reduction of up to `elements` moves in one shot.
int64_t LargestOneShot(int members, int64_t elements);

/// A member's block of columns, [rows, block], to its place in the whole.
void SpreadBlock(const std::byte* x, const GatherArgs& args,
                 const topology::Block& block, std::byte* out);

}  // namespace signet::collective
