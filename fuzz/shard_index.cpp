// model.safetensors.index.json. Every shard that is accepted is a plain name.

#include "model/shard_index.h"

#include <cstdint>
#include <string>

#include "fuzz/memory_file.h"
#include "fuzz/property.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = signet::fuzz::OpenBytes(data, size);
  const auto index = signet::model::ReadShardIndex(file);
  if (!index) return 0;
  for (const std::string& shard : index->shards) {
    FUZZ_REQUIRE(!shard.empty() && shard != "." && shard != "..");
    FUZZ_REQUIRE(shard.find('/') == shard.npos);
  }
  FUZZ_REQUIRE(index->shards.size() <= index->shard_of.size());
  return 0;
}
