#pragma once
// Writes the shards of a synthetic checkpoint with several threads. Which
// thread writes what changes no byte. One call at a time.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/result.h"
#include "model/synth_tensors.h"

namespace signet::model {

enum class SynthData {
  kDrawn,
  kHoles,  // full length, nothing stored: every value reads as zero
};

/// Makes each shard's file in `folder` and fills it. The first failure ends
/// all threads; files may then be incomplete. `stop` may be null; once it is
/// true the call fails with kAborted.
Result<void> WriteShards(const std::filesystem::path& folder,
                         const std::vector<SynthShard>& shards, SynthData data,
                         uint64_t seed, int num_threads,
                         const std::atomic<bool>* stop);

}  // namespace signet::model
