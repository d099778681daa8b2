// Indexed expert products: one row of input a slot (decode).

#include <cstdint>

#include "backend/cpu/expert_slot.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/product.h"
#include "backend/cpu/product_tasks.h"

namespace signet::backend::cpu {
namespace {

/// One input row times rows [begin, begin + count) of a stored matrix.
void MultiplySlot(const float* in, const void* weights, tensor::DType dtype,
                  int64_t begin, int64_t count, int64_t cols, float* out) {
  out += begin;
  MultiplyBlock({.inputs = &in,
                 .outputs = &out,
                 .num_inputs = 1,
                 .weights = StoredRow(weights, dtype, begin, cols),
                 .dtype = dtype,
                 .num_weights = count,
                 .cols = cols});
}

}  // namespace

void IndexedGateUp(ThreadPool& pool, const IndexedGateUpArgs& args) {
  const ExpertTableView& table = args.table;
  const int64_t num_slots = *args.rows.live * args.top_k;
  const Blocks blocks = WeightBlocks(table.width, table.hidden, 1,
                                     2 * num_slots, pool.num_threads());
  const int64_t tasks_per_slot = 2 * blocks.num_blocks;
  pool.ParallelFor(num_slots * tasks_per_slot, [&](int64_t task, int) {
    const int64_t slot = task / tasks_per_slot;
    const int32_t local =
        LocalExpertOf(args.ids[slot], table.global_to_local, table.num_experts);
    if (local < 0) return;
    const int64_t part = task % tasks_per_slot;
    const int64_t block = part % blocks.num_blocks;
    const bool is_gate = part < blocks.num_blocks;
    const ExpertPointers& expert = table.experts[local];
    MultiplySlot(args.x + slot / args.top_k * table.hidden,
                 is_gate ? expert.gate : expert.up,
                 is_gate ? table.gate_dtype : table.up_dtype,
                 blocks.begin(block), blocks.size(block), table.hidden,
                 (is_gate ? args.gate : args.up) + slot * table.width);
  });
}

void IndexedDown(ThreadPool& pool, const IndexedDownArgs& args) {
  const ExpertTableView& table = args.table;
  const int64_t num_slots = *args.rows.live * args.top_k;
  const Blocks blocks =
      WeightBlocks(table.hidden, table.width, 1, num_slots, pool.num_threads());
  pool.ParallelFor(num_slots * blocks.num_blocks, [&](int64_t task, int) {
    const int64_t slot = task / blocks.num_blocks;
    const int64_t block = task % blocks.num_blocks;
    const int32_t local =
        LocalExpertOf(args.ids[slot], table.global_to_local, table.num_experts);
    if (local < 0) return;
    MultiplySlot(args.act + slot * table.width, table.experts[local].down,
                 table.down_dtype, blocks.begin(block), blocks.size(block),
                 table.width, args.out + slot * table.hidden);
  });
}

}  // namespace signet::backend::cpu
