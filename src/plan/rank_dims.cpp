#include "plan/rank_dims.h"

namespace signet::plan {

RankDims DimsOf(const model::ModelConfig& config, const topology::Mesh& mesh,
                Rank rank) {
  const auto layers = static_cast<int64_t>(config.layers.size());
  const int64_t stages = mesh.size(topology::Axis::kPp);
  const int64_t stage = mesh.Coordinate(topology::Axis::kPp, rank);
  const int64_t parts = mesh.size(topology::Axis::kTp);
  const int64_t part = mesh.Coordinate(topology::Axis::kTp, rank);
  RankDims dims = {
      .first_layer = stage * layers / stages,
      .end_layer = (stage + 1) * layers / stages,
      .first_stage = stage == 0,
      .last_stage = stage + 1 == stages,
      .parts = parts,
      .part = part,
      .heads = config.num_heads / parts,
      .kv_heads = config.num_kv_heads / parts,
      .linear_key_heads = config.linear_key_heads / parts,
      .linear_value_heads = config.linear_value_heads / parts,
      .dense_width = config.dense_width / parts,
      .shared_width = config.shared_width / parts,
  };
  dims.conv_channels = config.conv_channels() / parts;
  const Block vocab = topology::BlockOf(config.vocab, parts, part);
  dims.first_vocab = vocab.first;
  dims.vocab = vocab.size;
  return dims;
}

}  // namespace signet::plan
