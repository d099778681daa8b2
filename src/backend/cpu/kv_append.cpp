// New keys and values into the paged cache.

#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/cpu/kv_rows.h"
#include "backend/cpu/ops.h"

namespace signet::backend::cpu {
namespace {

// Nearest even; a NaN stays one.
uint16_t RoundToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) {
    return static_cast<uint16_t>((bits >> 16) | 0x40);
  }
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

void StoreRow(const float* from, int64_t n, tensor::DType dtype, void* cache,
              int64_t offset) {
  if (dtype == tensor::DType::kBF16) {
    std::transform(from, from + n, static_cast<uint16_t*>(cache) + offset,
                   RoundToBF16);
  } else {
    std::memcpy(static_cast<float*>(cache) + offset, from,
                static_cast<size_t>(n) * sizeof(float));
  }
}

}  // namespace

void KvAppend(ThreadPool& pool, const KvAppendArgs& args) {
  const int64_t width = args.cache.num_kv_heads * args.cache.head_dim;
  pool.ParallelFor(*args.rows.live, [&](int64_t row, int) {
    const int64_t offset =
        KvOffset(args.cache, args.rows.slot[row], args.rows.position[row], 0);
    StoreRow(args.k + row * width, width, args.cache.dtype, args.cache.k,
             offset);
    StoreRow(args.v + row * width, width, args.cache.dtype, args.cache.v,
             offset);
  });
}

}  // namespace signet::backend::cpu
