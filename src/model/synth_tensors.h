#pragma once
// What a synthetic checkpoint consists of: tensors with their numbers, spread
// over shards. Pure functions; any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "model/synth.h"
#include "model/synth_config.h"
#include "model/synth_values.h"

namespace signet::model {

struct SynthTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string stream_name;   // whose numbers it holds
  uint64_t first_index = 0;  // of the stream
  ValueRecipe recipe;
  uint64_t num_elements() const;
  uint64_t size_bytes() const { return 2 * num_elements(); }
};

std::vector<SynthTensor> SynthTensors(const SynthConfig& config,
                                      const SynthOptions& options);

struct SynthShard {
  std::string file_name;
  std::string head;  // length and header, up to the first tensor's byte
  std::vector<SynthTensor> tensors;
  uint64_t data_bytes = 0;
};

/// Fills shards in order, each with at most `shard_bytes` of data unless one
/// tensor alone is larger.
std::vector<SynthShard> MakeShards(std::vector<SynthTensor> tensors,
                                   uint64_t shard_bytes);

/// model.safetensors.index.json
std::string IndexText(const std::vector<SynthShard>& shards);

}  // namespace signet::model
