#pragma once
// What one rank computes of the dense part: its pipeline stage's layers and its
// heads, channels, widths and vocabulary rows along tp (contract P3, P3b). The
// one place these numbers come from. Pure values; any thread.

#include <cstdint>

#include "base/id.h"
#include "model/config.h"
#include "topology/block.h"
#include "topology/mesh.h"

namespace signet::plan {

using topology::Block;

struct RankDims {
  // Layers [first_layer, end_layer) of the model.
  int64_t first_layer = 0;
  int64_t end_layer = 0;
  bool first_stage = true;  // embeds
  bool last_stage = true;   // norms, makes logits, samples
  // Along tp: `part` of `parts`; one part without the axis.
  int64_t parts = 1;
  int64_t part = 0;
  // Rank-local counts; heads are contiguous from part * count.
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t linear_key_heads = 0;
  int64_t linear_value_heads = 0;
  int64_t conv_channels = 0;  // q, k and v of the rank's linear heads
  int64_t dense_width = 0;
  int64_t shared_width = 0;
  // Rows [first_vocab, first_vocab + vocab) of lm_head.
  int64_t first_vocab = 0;
  int64_t vocab = 0;

  bool has_layer(LayerId layer) const {
    return layer.value() >= first_layer && layer.value() < end_layer;
  }
  /// The one rank of a tp group, in the last stage, that draws the token (X7);
  /// under ep every rank draws from its bit-equal logits.
  bool samples() const { return last_stage && part == 0; }
};

/// Admission has proven that the axes divide what they cut.
RankDims DimsOf(const model::ModelConfig& config, const topology::Mesh& mesh,
                Rank rank);

}  // namespace signet::plan
