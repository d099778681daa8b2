// Dense products: Projection and Logits.

#include <cstdint>

#include "backend/cpu/ops.h"
#include "backend/cpu/product.h"
#include "backend/cpu/product_tasks.h"

namespace signet::backend::cpu {
namespace {

/// out[m] = x[m] W^T for m in [0, num_inputs); rows are contiguous.
void MultiplyRows(ThreadPool& pool, const float* x, int64_t num_inputs,
                  const WeightView& weight, float* out) {
  const Blocks inputs = InputBlocks(num_inputs);
  const Blocks weights = WeightBlocks(weight.rows, weight.cols, inputs.block,
                                      inputs.num_blocks, pool.num_threads());
  // Input blocks vary fastest, so that a block of weights comes from memory
  // once and is met again while it is in cache.
  pool.ParallelFor(
      weights.num_blocks * inputs.num_blocks, [&](int64_t task, int) {
        const int64_t w = task / inputs.num_blocks;
        const int64_t b = task % inputs.num_blocks;
        const float* in_rows[kMaxBlockInputs];
        float* out_rows[kMaxBlockInputs];
        for (int64_t m = 0; m < inputs.size(b); ++m) {
          const int64_t row = inputs.begin(b) + m;
          in_rows[m] = x + row * weight.cols;
          out_rows[m] = out + row * weight.rows + weights.begin(w);
        }
        MultiplyBlock({.inputs = in_rows,
                       .outputs = out_rows,
                       .num_inputs = inputs.size(b),
                       .weights = StoredRow(weight.data, weight.dtype,
                                            weights.begin(w), weight.cols),
                       .dtype = weight.dtype,
                       .num_weights = weights.size(w),
                       .cols = weight.cols});
      });
}

}  // namespace

void Projection(ThreadPool& pool, const ProjectionArgs& args) {
  MultiplyRows(pool, FloatRows(args.x), *args.rows.live, args.weight, args.out);
}

void Logits(ThreadPool& pool, const LogitsArgs& args) {
  const int64_t live = *args.rows.live;
  if (live == 0) return;
  switch (args.which) {
    case LogitRows::kLast:
      return MultiplyRows(pool,
                          FloatRows(args.x) + (live - 1) * args.weight.cols, 1,
                          args.weight, args.out);
    case LogitRows::kAll:
      return MultiplyRows(pool, FloatRows(args.x), live, args.weight, args.out);
  }
}

}  // namespace signet::backend::cpu
