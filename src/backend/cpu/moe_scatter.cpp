// The grouped order of slots, and back.

#include <algorithm>
#include <cstdint>

#include "backend/cpu/expert_slot.h"
#include "backend/cpu/ops.h"
#include "base/check.h"

namespace signet::backend::cpu {

// A counting sort, O(S + E) with no scratch but its outputs. `offsets` serves
// as the write cursors of the fill and is restored afterwards.
void Scatter(ThreadPool&, const ScatterArgs& args) {
  const int64_t num_slots = args.rows.capacity * args.top_k;
  const int64_t live_slots = *args.rows.live * args.top_k;
  const int64_t tile = args.tile_rows;
  SIGNET_CHECK(tile > 0 && args.max_rows % tile == 0);
  const auto local_of = [&](int64_t slot) {
    return LocalExpertOf(args.ids[slot], args.global_to_local,
                         args.num_experts);
  };

  std::fill_n(args.counts, args.num_local, 0);
  std::fill_n(args.sorted_slot, args.max_rows, -1);
  std::fill_n(args.tile_expert, args.max_rows / tile, -1);
  std::fill_n(args.inverse_perm, num_slots, -1);

  for (int64_t slot = 0; slot < live_slots; ++slot) {
    const int32_t local = local_of(slot);
    if (local >= 0) ++args.counts[local];
  }
  // The bound of contract P5 makes the check below an impossibility, and it
  // comes before any row is written.
  int64_t end = 0;
  args.offsets[0] = 0;
  for (int64_t local = 0; local < args.num_local; ++local) {
    const int64_t padded = (args.counts[local] + tile - 1) / tile * tile;
    args.offsets[local + 1] = static_cast<int32_t>(end);  // cursor of `local`
    SIGNET_CHECK(padded <= args.max_rows - end);
    std::fill_n(args.tile_expert + end / tile, padded / tile,
                static_cast<int32_t>(local));
    args.counts[local] = static_cast<int32_t>(padded);
    end += padded;
  }
  for (int64_t slot = 0; slot < live_slots; ++slot) {
    const int32_t local = local_of(slot);
    if (local < 0) continue;
    const int32_t row = args.offsets[local + 1]++;
    args.sorted_slot[row] = static_cast<int32_t>(slot);
    args.inverse_perm[slot] = row;
  }
  for (int64_t local = 0; local < args.num_local; ++local) {
    args.offsets[local + 1] = args.offsets[local] + args.counts[local];
  }
}

void Unscatter(ThreadPool& pool, const UnscatterArgs& args) {
  constexpr int64_t kRows = 16;
  const int64_t width = args.width;
  const int64_t num_tasks = (args.max_rows + kRows - 1) / kRows;
  pool.ParallelFor(num_tasks, [&](int64_t task, int) {
    const int64_t end = std::min(args.max_rows, (task + 1) * kRows);
    for (int64_t row = task * kRows; row < end; ++row) {
      const int64_t slot = args.sorted_slot[row];
      if (slot < 0) continue;
      const float* y = args.y + row * 2 * width;
      std::copy_n(y, width, args.gate + slot * width);
      std::copy_n(y + width, width, args.up + slot * width);
    }
  });
}

}  // namespace signet::backend::cpu
