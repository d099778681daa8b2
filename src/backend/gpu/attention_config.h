#pragma once
// Which attention kernel runs and how a row's positions are split among blocks:
// pure functions of shapes and dtypes (contract N3). Host code, but for the
// constexpr functions, which kernels call too.

#include <cstdint>

#include "backend/views.h"
#include "tensor/dtype.h"

namespace signet::backend::gpu {

/// The widest head of any attention kernel.
inline constexpr int kMaxAttentionDim = 512;

enum class AttentionKernel {
  kDecode,  // tensor cores on operands split into bf16 parts that keep fp32
  kPlain,   // fp32 on the plain cores; any shape
  kFlash,   // a prefill on the tensor cores, q and weights rounded to bf16
  kWarpgroupFlash,  // the same by warpgroups, in the order of their sums
};

struct AttentionDesc {
  RowForm form = RowForm::kSequenceEach;
  int64_t capacity = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t page_size = 0;
  int64_t context = 0;  // positions a slot has
  tensor::DType kv_dtype = tensor::DType::kF32;
  bool aligned = false;  // every address is a multiple of 16 bytes
  int64_t scratch_bytes = 0;
};

/// How many positions a block sums at a time and how many blocks may share a
/// row: short rows take few blocks, long ones share all of them equally.
struct SplitRule {
  int32_t min_tokens = 0;
  int32_t max_splits = 1;
};

/// The splits of one row: `count` of `tokens` positions, the last one shorter.
struct RowSplits {
  int32_t tokens = 0;
  int32_t count = 0;
};

struct AttentionConfig {
  AttentionKernel kernel = AttentionKernel::kPlain;
  int64_t head_tiles = 1;  // blocks a kv head, kTileHeads query heads each
  SplitRule rule;          // of kDecode and kPlain
};

/// Query heads of one kv head that share what a block reads.
inline constexpr int kTileHeads = 8;
/// Splits begin at multiples of this, so that they tile pages and blocks.
inline constexpr int kSplitGranule = 16;
/// No row has more splits.
inline constexpr int kMostSplits = 128;

/// Depends on the row's own position alone.
constexpr RowSplits SplitsOf(const SplitRule& rule, int32_t position) {
  const int32_t length = position + 1;
  // What the divisions below would say: min_tokens is a multiple of a granule.
  if (length <= rule.min_tokens) return {.tokens = rule.min_tokens, .count = 1};
  const int32_t share = (length + rule.max_splits - 1) / rule.max_splits;
  const int32_t whole =
      (share + kSplitGranule - 1) / kSplitGranule * kSplitGranule;
  const int32_t tokens = whole < rule.min_tokens ? rule.min_tokens : whole;
  return {.tokens = tokens, .count = (length + tokens - 1) / tokens};
}

/// Where the split sums lie in scratch: per (row, head, split) a maximum and a
/// sum, then from `values_offset` the head_dim weighted sums.
struct SplitScratch {
  int64_t values_offset = 0;  // bytes, a multiple of 16
  int64_t bytes = 0;
};

constexpr SplitScratch SplitScratchOf(int64_t capacity, int64_t heads,
                                      int64_t head_dim, int64_t max_splits) {
  const int64_t sums = capacity * heads * max_splits;
  const int64_t values_offset = (sums * 8 + 15) / 16 * 16;
  return {.values_offset = values_offset,
          .bytes = values_offset + sums * head_dim * 4};
}

AttentionConfig ConfigureAttention(const AttentionDesc& desc);

}  // namespace signet::backend::gpu
