#pragma once
// What kernels see: addresses with shapes, and nothing of programs or plans.
// All matrices are row-major. Views do not own; the caller keeps the memory
// alive and unaliased (but for pairs an op declares) during the launch.

#include <cstdint>

#include "tensor/dtype.h"

namespace signet::backend {

/// The rows of a call. `live` <= `capacity`; rows past it are inert: not read,
/// not written, no state touched. In a shape of one sequence all live rows
/// share a slot and their positions are consecutive.
struct Rows {
  const int32_t* live = nullptr;      // [1]
  const int32_t* slot = nullptr;      // [capacity], sequence slot
  const int32_t* position = nullptr;  // [capacity], in the sequence
  int64_t capacity = 0;               // B of the shape
};

/// Decode: every row is another sequence. Prefill: all rows are one sequence.
enum class RowForm { kSequenceEach, kOneSequence };

/// A weight matrix as stored, [rows, cols], dtype f32, bf16 or f16.
struct WeightView {
  const void* data = nullptr;
  tensor::DType dtype = tensor::DType::kBF16;
  int64_t rows = 0;
  int64_t cols = 0;  // the reduction dimension; rows are `cols` apart
};

/// Input rows of a product, row-major: f32, or bf16 where the program rounds
/// them (contract N1).
struct InputView {
  const void* data = nullptr;
  tensor::DType dtype = tensor::DType::kF32;
};

/// A weight vector as stored, dtype f32, bf16 or f16.
struct VectorView {
  const void* data = nullptr;
  tensor::DType dtype = tensor::DType::kBF16;
  int64_t size = 0;
};

/// One expert's three matrices, as stored.
struct ExpertPointers {
  const void* gate = nullptr;  // [I, H]
  const void* up = nullptr;    // [I, H]
  const void* down = nullptr;  // [H, I]
};

/// Matrices of one kind that lie at one distance: that of local expert e begins
/// `apart` * e bytes after the first. Null where they lie otherwise, or nobody
/// looked.
struct ExpertMatrices {
  const void* first = nullptr;
  int64_t apart = 0;
};
struct ExpertLayout {
  ExpertMatrices gate;
  ExpertMatrices up;
  ExpertMatrices down;
};

/// The experts a rank holds.
struct ExpertTableView {
  const ExpertPointers* experts = nullptr;   // [num_local]
  const int32_t* global_to_local = nullptr;  // [num_experts], -1: foreign
  int64_t num_experts = 0;                   // E
  int64_t num_local = 0;                     // E_r
  int64_t hidden = 0;                        // H
  int64_t width = 0;                         // I of this rank
  tensor::DType gate_dtype = tensor::DType::kBF16;
  tensor::DType up_dtype = tensor::DType::kBF16;
  tensor::DType down_dtype = tensor::DType::kBF16;
  ExpertLayout layout;  // known to the host too
};

/// The paged KV cache of one layer. Token `p` of slot `s` lies in page
/// page_table[s * pages_per_slot + p / page_size], row p % page_size.
struct KvView {
  void* k = nullptr;  // [pages, page_size, num_kv_heads, head_dim]
  void* v = nullptr;  // the same
  tensor::DType dtype = tensor::DType::kF32;  // f32 or bf16
  const int32_t* page_table = nullptr;        // [slots, pages_per_slot]
  int64_t pages_per_slot = 0;
  int64_t page_size = 0;  // tokens
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
};

/// Sampling parameters of one row, as they lie in the program's io buffer
/// (i32 [rows, 8]). temperature 0 is greedy.
struct SamplingRow {
  float temperature = 0.0f;
  int32_t top_k = 0;     // 0: no limit
  float top_p = 1.0f;    // 1: no limit
  int32_t id_bound = 0;  // ids 0 ... id_bound - 1 may be drawn
  uint32_t seed_low = 0;
  uint32_t seed_high = 0;
  uint32_t sequence = 0;  // the caller's number, never the slot
  uint32_t position = 0;  // of the drawn token
};
static_assert(sizeof(SamplingRow) == 32);

/// Bits of the sticky flag word a routed block raises (contract N6).
inline constexpr int32_t kFlagNonFinite = 1;
inline constexpr int32_t kFlagExpertOutOfRange = 2;
inline constexpr int32_t kFlagExpertRepeated = 4;

}  // namespace signet::backend
