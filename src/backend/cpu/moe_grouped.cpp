// Grouped expert products: all rows of an expert at once (prefill). A run is
// the consecutive tiles of one expert; its rows meet each block of the expert's
// weights together, so weights are read once a run, not once a tile.

#include <algorithm>
#include <cstdint>

#include "backend/cpu/ops.h"
#include "backend/cpu/product.h"
#include "backend/cpu/product_tasks.h"

namespace signet::backend::cpu {
namespace {

/// Rows [begin, end) of the grouped order; empty unless the tile begins a run.
struct Run {
  int64_t begin = 0;
  int64_t end = 0;
};

Run RunAt(const int32_t* tile_expert, int64_t num_tiles, int64_t tile,
          int64_t tile_rows) {
  const int32_t expert = tile_expert[tile];
  if (expert < 0 || (tile > 0 && tile_expert[tile - 1] == expert)) return {};
  int64_t last = tile + 1;
  while (last < num_tiles && tile_expert[last] == expert) ++last;
  return {tile * tile_rows, last * tile_rows};
}

/// Where a grouped row takes its input and leaves its output.
struct GroupedRows {
  const int32_t* sorted_slot = nullptr;
  const float* inputs = nullptr;
  int64_t slots_per_input = 1;  // the input of slot s is row s / this
  float* outputs = nullptr;
  int64_t output_stride = 0;
};

/// The real rows of a run times a block of weight rows.
void MultiplyRun(const GroupedRows& rows, Run run, ProductBlock block,
                 int64_t output_column) {
  const int64_t count =
      run.end - run.begin -
      std::count(rows.sorted_slot + run.begin, rows.sorted_slot + run.end, -1);
  const Blocks inputs = InputBlocks(count);
  const float* in_rows[kMaxBlockInputs];
  float* out_rows[kMaxBlockInputs];
  block.inputs = in_rows;
  block.outputs = out_rows;
  block.num_inputs = 0;
  for (int64_t row = run.begin; row < run.end; ++row) {
    const int64_t slot = rows.sorted_slot[row];
    if (slot < 0) continue;  // padding
    in_rows[block.num_inputs] =
        rows.inputs + slot / rows.slots_per_input * block.cols;
    out_rows[block.num_inputs] =
        rows.outputs + row * rows.output_stride + output_column;
    if (++block.num_inputs < inputs.block) continue;
    MultiplyBlock(block);
    block.num_inputs = 0;
  }
  MultiplyBlock(block);
}

}  // namespace

void GroupedGateUp(ThreadPool& pool, const GroupedGateUpArgs& args) {
  const ExpertTableView& table = args.table;
  const int64_t num_tiles = args.max_rows / args.tile_rows;
  const Blocks blocks = WeightBlocks(table.width, table.hidden, args.tile_rows,
                                     2 * num_tiles, pool.num_threads());
  const int64_t tasks_per_tile = 2 * blocks.num_blocks;
  const GroupedRows rows = {args.sorted_slot, FloatRows(args.x), args.top_k,
                            args.y, 2 * table.width};
  pool.ParallelFor(num_tiles * tasks_per_tile, [&](int64_t task, int) {
    const int64_t tile = task / tasks_per_tile;
    const Run run = RunAt(args.tile_expert, num_tiles, tile, args.tile_rows);
    if (run.begin == run.end) return;
    const int64_t part = task % tasks_per_tile;
    const int64_t begin = blocks.begin(part % blocks.num_blocks);
    const bool is_gate = part < blocks.num_blocks;
    const ExpertPointers& expert = table.experts[args.tile_expert[tile]];
    const tensor::DType dtype = is_gate ? table.gate_dtype : table.up_dtype;
    MultiplyRun(rows, run,
                {.weights = StoredRow(is_gate ? expert.gate : expert.up, dtype,
                                      begin, table.hidden),
                 .dtype = dtype,
                 .num_weights = blocks.size(part % blocks.num_blocks),
                 .cols = table.hidden},
                (is_gate ? 0 : table.width) + begin);
  });
}

void GroupedDown(ThreadPool& pool, const GroupedDownArgs& args) {
  const ExpertTableView& table = args.table;
  const int64_t num_tiles = args.max_rows / args.tile_rows;
  const Blocks blocks = WeightBlocks(table.hidden, table.width, args.tile_rows,
                                     num_tiles, pool.num_threads());
  const GroupedRows rows = {args.sorted_slot, FloatRows(args.act), 1, args.y,
                            table.hidden};
  pool.ParallelFor(num_tiles * blocks.num_blocks, [&](int64_t task, int) {
    const int64_t tile = task / blocks.num_blocks;
    const Run run = RunAt(args.tile_expert, num_tiles, tile, args.tile_rows);
    if (run.begin == run.end) return;
    const int64_t begin = blocks.begin(task % blocks.num_blocks);
    const ExpertPointers& expert = table.experts[args.tile_expert[tile]];
    MultiplyRun(rows, run,
                {.weights = StoredRow(expert.down, table.down_dtype, begin,
                                      table.width),
                 .dtype = table.down_dtype,
                 .num_weights = blocks.size(task % blocks.num_blocks),
                 .cols = table.width},
                begin);
  });
}

}  // namespace signet::backend::cpu
