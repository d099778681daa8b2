#pragma once
// Writes checkpoints of random weights: any config, streamed to disk, the same
// bytes for the same seed on every machine and with any number of threads.
// Functions; one call a folder at a time.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace signet::model {

/// How the experts lie in the files. The weights are equal in both.
enum class SynthExperts { kFused, kPerExpert };

/// Under which names: as the config says, or turned into the other class.
enum class SynthNaming {
  kAsConfig,
  kNested,    // text_config, `model.language_model.`
  kTextOnly,  // text-only class, `model.`
};

/// A few small tensors that a text runtime must skip.
enum class SynthExtras { kNone, kVisionAndMtp };

struct SynthOptions {
  std::string config;  // config.json, a folder holding one, a registry name
  std::filesystem::path folder;  // made; must not exist, or be empty
  std::optional<int64_t> layers;
  std::optional<int64_t> vocab;
  uint64_t seed = 0;
  int threads = 1;
  const std::atomic<bool>* stop = nullptr;  // once true: ends as a failure
  bool sparse = false;  // weights are holes, all zero: headers to plan with
  // For tests; `signet synth` leaves these alone.
  SynthExperts experts = SynthExperts::kFused;
  SynthNaming naming = SynthNaming::kAsConfig;
  SynthExtras extras = SynthExtras::kNone;
  uint64_t shard_bytes = uint64_t{4} << 30;  // most data of one file
};

struct SynthReport {
  std::filesystem::path folder;
  int64_t num_tensors = 0;
  int num_shards = 0;
  Bytes size;             // of all tensors
  std::string tokenizer;  // "the config's own", "byte-level filler", ...
  std::string text;       // one sentence
};

/// Writes under a temporary name beside `folder` and renames at the end; on a
/// failure nothing is left. Matrices are N(0, initializer_range), embeddings
/// N(0, 1) (tied ones as matrices), zero-centred norms N(0, 0.2), the DeltaNet
/// norm 1 + N(0, 0.2), the conv N(0, 0.5), A_log log U(0.01, 16) and dt_bias 1
/// - 4 |N(0, 1)|, so that heads forget within one token to thousands; router
/// and shared gate N(0, 2 / sqrt(H)), so that scores of a unit-RMS input have
/// deviation 2. Everything is BF16. An element depends on (seed, tensor name
/// without prefix, index); experts count as their fused tensors.
Result<SynthReport> Synthesize(const SynthOptions& options);

}  // namespace signet::model
