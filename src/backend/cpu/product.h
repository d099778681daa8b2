#pragma once
// The one dot product of the CPU backend. Every product with weights goes
// through MultiplyBlock, so a row of input and a row of weights give the same
// bits in decode, batched decode, prefill, indexed and grouped experts
// (contract N4): element k of the reduction belongs to lane k mod 16, a lane
// sums with fused multiply-adds in ascending k from +0, elements past the end
// are zero, and the lanes are added pairwise at distance 8, 4, 2, 1.
// Thread-safe and free of allocation.

#include <cstdint>

#include "tensor/dtype.h"

namespace signet::backend::cpu {

/// Lanes of a dot product, part of the signature of "the same bits".
inline constexpr int64_t kDotLanes = 16;

/// Most input rows of one block; bounds the scratch on the stack.
inline constexpr int64_t kMaxBlockInputs = 64;

/// outputs[m][n] = dot(inputs[m], weights[n]). Outputs alias nothing.
struct ProductBlock {
  const float* const* inputs = nullptr;  // [num_inputs], each [cols]
  float* const* outputs = nullptr;       // [num_inputs], each [num_weights]
  int64_t num_inputs = 0;                // <= kMaxBlockInputs
  const void* weights = nullptr;         // [num_weights, cols], as stored
  tensor::DType dtype = tensor::DType::kBF16;
  int64_t num_weights = 0;
  int64_t cols = 0;
};

void MultiplyBlock(const ProductBlock& block);

/// The address of row `row` of a stored matrix.
inline const void* StoredRow(const void* data, tensor::DType dtype, int64_t row,
                             int64_t cols) {
  return static_cast<const char*>(data) +
         row * cols * static_cast<int64_t>(tensor::SizeOf(dtype));
}

}  // namespace signet::backend::cpu
