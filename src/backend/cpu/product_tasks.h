#pragma once
// How a product is cut into tasks: over weight rows and blocks of input rows,
// never over the reduction. Sizes are a matter of speed alone; no result
// depends on them.

#include <algorithm>
#include <cstdint>

#include "backend/cpu/product.h"
#include "backend/views.h"
#include "base/check.h"

namespace signet::backend::cpu {

/// `count` items cut into `num_blocks` runs of `block` (the last may be short).
struct Blocks {
  int64_t count = 0;
  int64_t block = 1;
  int64_t num_blocks = 0;
  int64_t begin(int64_t i) const { return i * block; }
  int64_t size(int64_t i) const { return std::min(block, count - begin(i)); }
};

/// The rows of an input; programs for the CPU keep them in f32 (contract N1).
inline const float* FloatRows(const InputView& x) {
  SIGNET_CHECK(x.dtype == tensor::DType::kF32);
  return static_cast<const float*>(x.data);
}

/// Near-equal blocks of at most kMaxBlockInputs rows.
inline Blocks InputBlocks(int64_t count) {
  if (count == 0) return {};
  const int64_t num_blocks = (count + kMaxBlockInputs - 1) / kMaxBlockInputs;
  const int64_t block = (count + num_blocks - 1) / num_blocks;
  return {count, block, (count + block - 1) / block};
}

/// Blocks of weight rows: enough of them to spread over the threads, each large
/// enough to outweigh its claim. `num_inputs` rows meet each weight row, and
/// `num_products` such products are cut in one run.
inline Blocks WeightBlocks(int64_t count, int64_t cols, int64_t num_inputs,
                           int64_t num_products, int num_threads) {
  constexpr int64_t kStep = 12;        // a multiple of both tiles of rows
  constexpr int64_t kMaxRows = 96;     // a block of weights stays in L2
  constexpr int64_t kMinWork = 32768;  // multiply-adds, a few microseconds
  constexpr int64_t kTasksPerThread = 8;
  if (count == 0) return {};
  const int64_t row_work = std::max<int64_t>(1, cols * num_inputs);
  const int64_t spread = count * std::max<int64_t>(1, num_products) /
                         (kTasksPerThread * num_threads);
  const int64_t rows = std::clamp(
      spread, std::min((kMinWork + row_work - 1) / row_work, kMaxRows),
      kMaxRows);
  const int64_t block =
      (std::max<int64_t>(rows, 1) + kStep - 1) / kStep * kStep;
  return {count, block, (count + block - 1) / block};
}

}  // namespace signet::backend::cpu
