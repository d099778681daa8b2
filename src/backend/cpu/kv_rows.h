#pragma once
// Where a token's key and value lie in the paged cache.

#include <cstdint>

#include "backend/views.h"

namespace signet::backend::cpu {

/// The element offset of (slot, position, kv head) in `k` and `v`.
inline int64_t KvOffset(const KvView& cache, int64_t slot, int64_t position,
                        int64_t kv_head) {
  const int64_t page =
      cache
          .page_table[slot * cache.pages_per_slot + position / cache.page_size];
  const int64_t token = page * cache.page_size + position % cache.page_size;
  return (token * cache.num_kv_heads + kv_head) * cache.head_dim;
}

}  // namespace signet::backend::cpu
