#pragma once
// The config of a synthetic checkpoint: found, overridden, proven. Functions;
// any thread.

#include <filesystem>
#include <optional>
#include <string>

#include "base/json_tree.h"
#include "base/result.h"
#include "model/config.h"
#include "model/synth.h"

namespace signet::model {

struct SynthConfig {
  JsonTree json;       // what config.json will hold
  ModelConfig model;   // the same, parsed
  std::string prefix;  // of the language model's tensors
  double initializer_range = 0.02;
  /// The folder the config came from, if its tokenizer still fits.
  std::optional<std::filesystem::path> tokenizer_folder;
};

Result<SynthConfig> PrepareSynthConfig(const SynthOptions& options);

}  // namespace signet::model
