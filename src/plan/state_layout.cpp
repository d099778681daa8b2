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

StateLayout LayOutState(const model::ModelConfig& config,
                        const PlanOptions& options) {
  StateLayout state;
  state.pages_per_slot =
      (options.context + options.page_tokens - 1) / options.page_tokens;
  state.num_pages = state.pages_per_slot * options.batch;
  for (const model::LayerConfig& layer : config.layers) {
    LayerState& buffers = state.layers.emplace_back();
    if (layer.mixer == model::MixerKind::kFullAttention) {
      const tensor::Shape pages = {state.num_pages, options.page_tokens,
                                   config.num_kv_heads, config.head_dim};
      buffers.k =
          Place(MemoryClass::kKv, options.kv_dtype, pages, state.kv_bytes);
      buffers.v =
          Place(MemoryClass::kKv, options.kv_dtype, pages, state.kv_bytes);
    } else {
      buffers.recurrent =
          Place(MemoryClass::kRecurrent, tensor::DType::kF32,
                {options.batch, config.linear_value_heads,
                 config.linear_key_dim, config.linear_value_dim},
                state.recurrent_bytes);
      buffers.conv =
          Place(MemoryClass::kRecurrent, tensor::DType::kF32,
                {options.batch, config.conv_channels(), config.conv_taps - 1},
                state.recurrent_bytes);
    }
  }
  return state;
}

}  // namespace signet::plan
