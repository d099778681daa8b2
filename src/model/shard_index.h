#pragma once
// model.safetensors.index.json: which shard holds which tensor. The map and
// the shards' headers are trusted, never patterns of file names. Functions;
// any thread.

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/checkpoint.h"

namespace signet::model {

struct ShardIndex {
  std::map<std::string, std::string, std::less<>> shard_of;  // by tensor name
  std::vector<std::string> shards;  // file names, ascending, each once
};

/// Parses an opened index. A shard is a plain file name of the same folder.
/// `metadata.total_size` may be a float and is not compared: writers count
/// tied tensors differently, and the headers say the truth.
Result<ShardIndex> ReadShardIndex(const OpenedFile& file);

}  // namespace signet::model
