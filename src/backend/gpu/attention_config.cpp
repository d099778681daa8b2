#include "backend/gpu/attention_config.h"

#include <algorithm>

namespace signet::backend::gpu {
namespace {

// Two blocks on each multiprocessor of the GPU this is tuned for. A constant,
// so that the cut does not depend on the device.
constexpr int64_t kTargetBlocks = 264;
// Even of many rows, a long one is shared by several blocks.
constexpr int64_t kFewestSplits = 16;

// A prefill of no more rows than this reads the cache once a row, split, rather
// than once in all by the few blocks it would fill.
constexpr int64_t kSplitPrefillRows = 16;

bool HasTensorDim(int64_t dim) { return dim == 64 || dim == 128 || dim == 256; }

// What one block's query rows hold, all heads of a group, in both prefills.
constexpr int64_t kFlashRows = 128;

// Whether the decode kernel can tell a position's page: tiles lie in one page,
// and position / page_size is the high half of position times ceil(2^32 /
// page_size), whose error is less than page_size, and 0 for powers of two.
bool HasDecodePages(const AttentionDesc& desc) {
  if (desc.page_size % kSplitGranule != 0) return false;
  return (desc.page_size & (desc.page_size - 1)) == 0 ||
         desc.page_size * (desc.context + desc.page_size) < int64_t{1} << 32;
}

AttentionKernel ChooseKernel(const AttentionDesc& desc, bool split) {
  if (desc.kv_dtype != tensor::DType::kBF16 || !desc.aligned ||
      !HasTensorDim(desc.head_dim)) {
    return AttentionKernel::kPlain;
  }
  if (split) {
    return HasDecodePages(desc) ? AttentionKernel::kDecode
                                : AttentionKernel::kPlain;
  }
  if (desc.heads / desc.kv_heads > kFlashRows) return AttentionKernel::kPlain;
  // Whether both products take instructions of full width.
  return desc.head_dim >= 128 ? AttentionKernel::kWarpgroupFlash
                              : AttentionKernel::kFlash;
}

int64_t MinTokens(int64_t units) {
  if (units <= 32) return 64;
  return units <= 128 ? 128 : 256;
}

}  // namespace

AttentionConfig ConfigureAttention(const AttentionDesc& desc) {
  const bool split =
      desc.form == RowForm::kSequenceEach || desc.capacity <= kSplitPrefillRows;
  const int64_t group = desc.heads / desc.kv_heads;
  AttentionConfig config;
  config.kernel = ChooseKernel(desc, split);
  config.head_tiles = (group + kTileHeads - 1) / kTileHeads;
  if (!split) return config;
  const int64_t units = desc.capacity * desc.kv_heads * config.head_tiles;
  const int64_t min_tokens = MinTokens(units);
  int64_t splits =
      std::clamp<int64_t>(kTargetBlocks / units, kFewestSplits, kMostSplits);
  splits = std::min(splits, (desc.context + min_tokens - 1) / min_tokens);
  const auto fits = [&] {
    return SplitScratchOf(desc.capacity, desc.heads, desc.head_dim, splits)
               .bytes <= desc.scratch_bytes;
  };
  // One split needs no scratch.
  while (splits > 1 && !fits()) --splits;
  config.rule = {
      .min_tokens = static_cast<int32_t>(min_tokens),
      .max_splits = static_cast<int32_t>(std::max<int64_t>(splits, 1))};
  return config;
}

}  // namespace signet::backend::gpu
