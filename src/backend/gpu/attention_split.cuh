#pragma once
// What the kernels share that sum a row's positions in splits: which piece a
// block does, where its sums go, and how a finished head is written. A split
// leaves, for its head, the greatest score, the sum of weights under it and
// the weighted sum of values; the merge adds the splits in their order.

#include <cstdint>

#include "backend/fused_kernels.h"
#include "backend/gpu/attention_config.h"
#include "backend/gpu/math.cuh"
#include "backend/gpu/vendor.h"

namespace signet::backend::gpu {

/// One launch of attention. `rope` and `append` are set in fused launches only.
struct SplitAttention {
  AttendArgs ops;
  AttentionConfig config;
  void* scratch = nullptr;
};

/// Fills in everything but the fused steps.
SplitAttention MakeSplitAttention(const AttentionArgs& args, void* scratch,
                                  int64_t scratch_bytes);

/// attention_decode.cu, attention_plain.cu, attention_merge.cu. The merge does
/// the rows of more than one split; without such rows it is not needed.
Status LaunchDecode(Stream stream, const SplitAttention& attention);
Status LaunchPlain(Stream stream, const SplitAttention& attention);
Status LaunchMerge(Stream stream, const SplitAttention& attention);
/// sm80_attention.cu, sm90_attention.cu.
Status LaunchFlash(Stream stream, const AttentionArgs& args);
Status LaunchWarpgroupFlash(Stream stream, const AttentionArgs& args);

/// Splits, head tiles of all kv heads, rows.
inline dim3 SplitGrid(const SplitAttention& attention) {
  const AttentionArgs& args = attention.ops.attention;
  return dim3(static_cast<unsigned>(attention.config.rule.max_splits),
              static_cast<unsigned>(args.cache.num_kv_heads *
                                    attention.config.head_tiles),
              static_cast<unsigned>(args.rows.capacity));
}

/// The piece of a block of SplitGrid: positions [begin, end) of a row, for
/// query heads [first_head, first_head + num_heads) of a kv head.
struct SplitPiece {
  int64_t row;
  int32_t slot;
  int32_t position;
  RowSplits splits;
  int32_t split;
  int32_t begin;
  int32_t end;
  int64_t kv_head;
  int64_t first_head;
  int num_heads;
};

/// What does not depend on the row's position. Rows come last to first, the
/// longest of a sequence first.
__device__ inline SplitPiece PieceOf(const SplitAttention& attention) {
  const AttentionArgs& args = attention.ops.attention;
  SplitPiece piece = {};
  piece.row = gridDim.z - 1 - blockIdx.z;
  piece.split = static_cast<int32_t>(blockIdx.x);
  const auto tiles = static_cast<int>(attention.config.head_tiles);
  const auto tile = static_cast<int>(blockIdx.y);
  const auto group =
      static_cast<int>(args.heads) / static_cast<int>(args.cache.num_kv_heads);
  const int in_group = tile % tiles * kTileHeads;
  piece.kv_head = tile / tiles;
  piece.first_head = piece.kv_head * group + in_group;
  piece.num_heads = min(kTileHeads, group - in_group);
  return piece;
}

/// What a block must know of its row. Three loads at a time; of an inert row
/// they are not used.
struct RowState {
  int32_t live;
  int32_t slot;
  int32_t position;
};
__device__ inline RowState StateOf(const Rows& rows, int64_t row) {
  return {*rows.live, rows.slot[row], rows.position[row]};
}

/// False only if FindPositions is: a quick answer for the blocks that a short
/// row leaves without work. Splits have no fewer tokens than min_tokens.
__device__ inline bool MayHavePositions(const SplitRule& rule,
                                        const RowState& state,
                                        const SplitPiece& piece) {
  return piece.row < state.live &&
         piece.split * rule.min_tokens <= state.position;
}

/// The rest of the piece. False when there is nothing to do: a row past the
/// live ones, or positions past the row's own.
__device__ inline bool FindPositions(const SplitRule& rule,
                                     const RowState& state, SplitPiece& piece) {
  if (piece.row >= state.live) return false;
  piece.slot = state.slot;
  piece.position = state.position;
  piece.splits = SplitsOf(rule, piece.position);
  if (piece.split >= piece.splits.count) return false;
  piece.begin = piece.split * piece.splits.tokens;
  piece.end = min(piece.begin + piece.splits.tokens, piece.position + 1);
  return true;
}

__device__ inline bool FindPiece(const SplitAttention& attention,
                                 SplitPiece& piece) {
  piece = PieceOf(attention);
  const RowState state = StateOf(attention.ops.attention.rows, piece.row);
  return FindPositions(attention.config.rule, state, piece);
}

/// Where a split's sums lie.
struct SplitSums {
  float2* totals;  // [rows, heads, max_splits] greatest score, sum of weights
  float* values;   // [rows, heads, max_splits, head_dim]
};
__device__ inline SplitSums SumsIn(const SplitAttention& attention) {
  const AttentionArgs& args = attention.ops.attention;
  const SplitScratch scratch =
      SplitScratchOf(args.rows.capacity, args.heads, args.cache.head_dim,
                     attention.config.rule.max_splits);
  return {static_cast<float2*>(attention.scratch),
          reinterpret_cast<float*>(static_cast<char*>(attention.scratch) +
                                   scratch.values_offset)};
}
__device__ inline int64_t SumIndex(const SplitAttention& attention, int64_t row,
                                   int64_t head, int32_t split) {
  return (row * attention.ops.attention.heads + head) *
             attention.config.rule.max_splits +
         split;
}

/// A finished element: the weighted mean, gated. `factor` is the gate's
/// sigmoid.
__device__ inline float GatedBy(float sum, float inverse, float factor) {
  return __fmul_rn(__fmul_rn(sum, inverse), factor);
}
__device__ inline float Gated(float sum, float inverse, float gate) {
  return GatedBy(sum, inverse, Sigmoid(gate));
}

/// The gate of a head, of head_dim elements.
__device__ inline const float* GateOf(const AttentionArgs& args, int64_t row,
                                      int64_t head) {
  return args.q_gate +
         ((row * args.heads + head) * 2 + 1) * args.cache.head_dim;
}

}  // namespace signet::backend::gpu
