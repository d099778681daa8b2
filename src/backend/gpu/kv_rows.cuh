#pragma once
// Where a token's key and value lie in the paged cache, and its elements.
// Device code only.

#include <cuda_bf16.h>

#include <cstdint>

#include "backend/views.h"

namespace signet::backend::gpu {

/// The element offset of (slot, position, kv head) in `k` and `v`. The entry of
/// the page table that `position` lies in must exist.
__device__ inline int64_t KvOffset(const KvView& cache, int32_t slot,
                                   int32_t position, int64_t kv_head) {
  const auto page_size = static_cast<int32_t>(cache.page_size);
  const int32_t index = position / page_size;
  const int64_t page =
      __ldg(cache.page_table + slot * cache.pages_per_slot + index);
  const int64_t token = page * page_size + (position - index * page_size);
  return (token * cache.num_kv_heads + kv_head) * cache.head_dim;
}

/// A cache element of an f32 value: nearest even.
__device__ inline void StoreElement(float value, float* to) { *to = value; }
__device__ inline void StoreElement(float value, __nv_bfloat16* to) {
  *to = __float2bfloat16_rn(value);
}

}  // namespace signet::backend::gpu
