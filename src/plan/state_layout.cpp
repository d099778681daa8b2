#include "plan/state_layout.h"

#include "plan/layouter.h"

namespace signet::plan {
namespace {

StateBuffer Place(MemoryClass arena, tensor::DType dtype, tensor::Shape shape,
                  Bytes& arena_bytes) {
  const Bytes offset = arena_bytes.AlignUp(kBufferAlignment);
  const Bytes size = shape.StorageBytes(dtype);
  arena_bytes = offset + size;
  return {arena, dtype, shape, offset.value(), size};
}

}  // namespace

KvPool PoolOf(const PlanOptions& options) {
  const int64_t pages_per_slot =
      (options.context + options.page_tokens - 1) / options.page_tokens;
  return {.page_tokens = options.page_tokens,
          .pages_per_slot = pages_per_slot,
          .num_pages = pages_per_slot * options.batch};
}

StateLayout LayOutState(const model::ModelConfig& config, const RankDims& dims,
                        const PlanOptions& options) {
  StateLayout state;
  const KvPool pool = PoolOf(options);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerState& buffers = state.layers.emplace_back();
    if (!dims.has_layer(LayerId(static_cast<int32_t>(i)))) continue;
    if (config.layers[i].mixer == model::MixerKind::kFullAttention) {
      const tensor::Shape pages = {pool.num_pages, pool.page_tokens,
                                   dims.kv_heads, config.head_dim};
      buffers.k =
          Place(MemoryClass::kKv, options.kv_dtype, pages, state.kv_bytes);
      buffers.v =
          Place(MemoryClass::kKv, options.kv_dtype, pages, state.kv_bytes);
    } else {
      buffers.recurrent =
          Place(MemoryClass::kRecurrent, tensor::DType::kF32,
                {options.batch, dims.linear_value_heads, config.linear_key_dim,
                 config.linear_value_dim},
                state.recurrent_bytes);
      buffers.conv =
          Place(MemoryClass::kRecurrent, tensor::DType::kF32,
                {options.batch, dims.conv_channels, config.conv_taps - 1},
                state.recurrent_bytes);
    }
  }
  return state;
}

}  // namespace signet::plan
