#pragma once
// Which kernel computes products of f32 inputs, from shapes and dtypes alone
// (contract N3). DotWarps, IsFewRows and IsManyRows alone are a matter of bits,
// and follow from lengths and numbers of rows: the rest is speed. Host only, no
// device needed.

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/fused_kernels.h"

namespace signet::backend::gpu {

/// Warps that share a row of weights: part of the order of a dot product. Where
/// there is one input row, a warp takes whole rows (decode_products.cu).
constexpr int DotWarps(int64_t cols, int64_t capacity) {
  return cols > (capacity == 1 ? 32768 : 1024) ? 8 : 1;
}
/// The same of the experts' products, which meet one input row each.
constexpr int ExpertDotWarps(int64_t cols) { return cols > 4096 ? 8 : 1; }

/// Whether a few rows of whole bf16 weights meet on the tensor cores
/// (sm80_few_rows.cu), another order again: rows of the one length whose input
/// leaves the division of shared memory as it is.
inline constexpr int64_t kFewColumns = 2048;
constexpr bool IsFewRows(int64_t capacity, int64_t cols) {
  return capacity >= 2 && capacity <= 8 && cols == kFewColumns;
}

/// Whether many rows of whole bf16 weights meet on the tensor cores
/// (sm80_many_rows.cu), another order again; `rows` of the weights.
constexpr bool IsManyRows(int64_t capacity, int64_t rows, int64_t cols) {
  return capacity > 8 && rows >= 16 && cols > 0 && cols % 64 == 0;
}

/// What a block of many rows takes: rows of the input and of the weights. No
/// matter of bits.
struct ManyTile {
  int inputs;
  int weights;
  friend bool operator==(const ManyTile&, const ManyTile&) = default;
  constexpr int64_t Blocks(int64_t num_inputs, int64_t num_weights) const {
    return (num_inputs + inputs - 1) / inputs *
           ((num_weights + weights - 1) / weights);
  }
};
inline constexpr ManyTile kSmallTile = {16, 64};
inline constexpr ManyTile kMiddleTile = {32, 128};
inline constexpr ManyTile kLargeTile = {64, 256};

/// Small tiles while they fill an H200 no more than once, the middle ones while
/// no more than three times: then the large ones, one of which takes as long as
/// three of these, are the sooner done.
constexpr ManyTile ChooseManyTile(int64_t inputs, int64_t weights) {
  constexpr int64_t kMultiprocessors = 132;
  if (kSmallTile.Blocks(inputs, weights) <= kMultiprocessors) {
    return kSmallTile;
  }
  return kMiddleTile.Blocks(inputs, weights) <= 3 * kMultiprocessors
             ? kMiddleTile
             : kLargeTile;
}

/// Products of the same input rows in one launch.
struct FloatDesc {
  int64_t capacity = 0;  // input rows
  // Only one of them is multiplied, in the bits it has among the others.
  bool last_row = false;
  int64_t cols = 0;
  // Weight rows of each product. When `paired`, the last one stands for two
  // products of that many rows, met pair by pair.
  std::array<int64_t, kMaxFusedProducts> rows{};
  int num_products = 0;
  bool paired = false;
  // All weights are bf16 in rows of whole octets at multiples of 16 bytes, and
  // so are the rows of the input.
  bool vectors = false;
  bool norm = false;  // the input is normed on the way
  int num_sms = 0;
};

enum class FloatPath {
  kShared,    // 16-byte loads, the input in shared memory
  kStreamed,  // 16-byte loads, the input too large for that
  kPortable,  // any shape, dtype and alignment
};

struct FloatConfig {
  FloatPath path = FloatPath::kPortable;
  int dot_warps = 1;
  int rows = 2;        // weight rows of a step
  int chunks = 1;      // octets in flight of each, a thread
  int batch = 1;       // input rows of a block
  int teams = 1;       // of 256 threads, a block; they share the input
  int64_t groups = 0;  // of `rows` weight rows
  int64_t blocks = 0;
  int64_t batches = 0;  // blocks of input rows
  size_t shared_bytes = 0;
};

/// Groups of `rows` weight rows of product `p`; of half as many pairs.
int64_t GroupsOf(const FloatDesc& desc, int p, int rows);

FloatConfig ChooseFloat(const FloatDesc& desc);

/// Whether norm, products and what follows them may be one launch.
bool FusesFloat(const FloatDesc& desc);

/// Products of experts, a slot's input row each.
struct ExpertDesc {
  int64_t capacity = 0;
  int64_t top_k = 0;
  int64_t num_experts = 0;
  int64_t rows = 0;  // weight rows of one matrix
  int64_t cols = 0;
  bool paired = false;   // gate and up of a token's row; else down of a slot's
  bool bf16 = false;     // all weights
  bool aligned = false;  // the input lies at a multiple of 16 bytes
  int num_sms = 0;
};

struct ExpertConfig {
  int dot_warps = 1;
  bool vectors = false;  // 16-byte loads, if the experts' addresses allow
  bool input_in_shared = false;
  bool table_in_shared = false;  // the addresses of the experts
  int64_t blocks = 0;
  int64_t slot_blocks = 0;  // of kExpertSlots slots
  size_t shared_bytes = 0;
};

/// Slots that one block keeps track of.
inline constexpr int kExpertSlots = 256;
/// Weight rows of a step of an expert's product, and octets in flight of each.
struct ExpertStep {
  int rows;
  int chunks;
};
constexpr ExpertStep StepOfExpert(int dot_warps, bool paired) {
  if (dot_warps > 1) return {8, 1};
  return paired ? ExpertStep{2, 8} : ExpertStep{4, 2};
}
/// Blocks on a multiprocessor, as the registers of a step allow.
constexpr int ExpertBlocksPerSm(int dot_warps, bool paired) {
  return dot_warps == 1 && paired ? 2 : 4;
}

ExpertConfig ChooseExpert(const ExpertDesc& desc);

/// Route, gate and up in one launch: every block routes every row.
struct RouteGateUpDesc {
  int64_t capacity = 0;
  int64_t top_k = 0;
};
bool FusesRouteGateUp(const RouteGateUpDesc& desc);

/// Down of the experts and of the shared expert, and the sums after them.
struct MoeTailDesc {
  int64_t capacity = 0;
  int64_t top_k = 0;
  int64_t num_experts = 0;
  int64_t hidden = 0;
  int64_t width = 0;         // I of the experts
  int64_t shared_width = 0;  // I of the shared expert
  bool bf16 = false;         // all weights
  bool vectors = false;      // the shared weights lie at multiples of 16 bytes
  int num_sms = 0;
};

struct MoeTailConfig {
  int chunks = 0;  // octets of a row, a thread: 2 or 4; 0: not fused
  int64_t blocks = 0;
  size_t shared_bytes = 0;
};

inline constexpr int kMoeTailThreads = 512;
/// Rows of activations that a token's tail reads, the shared expert's last.
constexpr int64_t MoeTailActs(int64_t top_k) { return top_k + 1; }
/// Slots of a step: sixteen octets in flight a thread.
constexpr int MoeTailStep(int chunks) { return 16 / chunks; }
/// Slots of a token, padded to whole steps.
constexpr int64_t MoeTailSlots(int64_t top_k, int chunks) {
  const int64_t step = MoeTailStep(chunks);
  return (top_k + step - 1) / step * step;
}

MoeTailConfig ChooseMoeTail(const MoeTailDesc& desc);

}  // namespace signet::backend::gpu
