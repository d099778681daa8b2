#pragma once
// Where the state of every layer of a rank lies in its arena: KV pages,
// recurrent state, conv columns; one entry per sequence slot (contract P4).

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/id.h"
#include "base/memory_class.h"
#include "model/config.h"
#include "plan/plan_options.h"
#include "plan/rank_dims.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace signet::plan {

struct StateBuffer {
  MemoryClass arena;  // kKv or kRecurrent
  tensor::DType dtype;
  tensor::Shape shape;
  uint64_t offset_bytes;
  Bytes size;
};

/// The pages that the KV cache of every attention layer has; equal on all
/// ranks.
struct KvPool {
  int64_t page_tokens;
  int64_t pages_per_slot;
  int64_t num_pages;
};
KvPool PoolOf(const PlanOptions& options);

/// State of one layer; the two kinds of layer have two pairs, a layer of
/// another stage none. Heads and channels are the rank's.
struct LayerState {
  // Full attention: [pages, page_tokens, kv_heads, head_dim].
  std::optional<StateBuffer> k;
  std::optional<StateBuffer> v;
  // Linear attention: [slots, value_heads, dk, dv] f32 and
  // [slots, channels, taps - 1] f32.
  std::optional<StateBuffer> recurrent;
  std::optional<StateBuffer> conv;
};

struct StateLayout {
  std::vector<LayerState> layers;  // of the whole model
  Bytes kv_bytes;
  Bytes recurrent_bytes;
};

StateLayout LayOutState(const model::ModelConfig& config, const RankDims& dims,
                        const PlanOptions& options);

}  // namespace signet::plan
