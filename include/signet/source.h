#pragma once
// A checkpoint on disk, opened: headers and small files only, kept open for
// the load. A cheap shared handle; any thread.

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "signet/error.h"

namespace signet {

/// Where names are looked up. The library reads no environment.
struct SearchPaths {
  std::optional<std::filesystem::path> models;  // $SIGNET_MODELS
  std::optional<std::filesystem::path> hub;     // .../huggingface/hub
  std::filesystem::path demo;                   // the embedded demo model
};

/// One registry name and where it was found here.
struct ModelListing {
  std::string name;
  std::string hub_name;                         // "Qwen/Qwen3.6-35B-A3B"
  std::optional<std::filesystem::path> folder;  // unset: not on this machine
};

/// The registry, in its order. Failure: kMemory.
Result<std::vector<ModelListing>> ListModels(const SearchPaths& paths);

class Source {
 public:
  /// A folder in the Hugging Face layout, or a registry name. Everything that
  /// is wrong with the files is refused here, with its place. Failure: kIo,
  /// kMemory.
  static Result<Source> Open(std::string_view path_or_name,
                             const SearchPaths& paths);

  /// As it was found; valid as long as a handle on this source.
  const std::string& folder() const;
  bool has_tokenizer() const;
  bool has_chat_template() const;
  /// Whether conversations can be rendered: kRequestInvalid without a chat
  /// template, kTokenizerUnsupported for one that is not the canonical one of
  /// Qwen3.5 and Qwen3.6. What the tokenizer lacks shows when it is loaded.
  Result<void> CheckChat() const;
  /// The manifest, for people. Failure: kMemory.
  Result<std::string> InspectText() const;
  /// The manifest as one JSON object. Failure: kMemory.
  Result<std::string> InspectJson() const;

  struct Impl;

 private:
  friend class Plan;
  static Result<Source> OpenHere(std::string_view path_or_name,
                                 const SearchPaths& paths);
  explicit Source(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

/// Writes a random-weight checkpoint of a config (see `signet synth --help`).
struct SynthRequest {
  std::string config;  // config.json, a folder holding one, or a registry name
  std::filesystem::path folder;  // made; must not exist or be empty
  std::optional<int64_t> layers;
  std::optional<int64_t> vocab;
  uint64_t seed = 0;
  bool sparse = false;  // no weight is stored, all read as zero: to plan with
  int threads = 0;      // 0: as many as the machine has
  /// May be null; once it is true the call ends in a Failure of kind kAborted.
  /// Set from any thread or a signal handler.
  const std::atomic<bool>* stop = nullptr;
};

/// A sentence of what was written. Nothing is left behind on failure. Blocks
/// until all is written; any thread. Failure: kIo, kAborted, kMemory.
Result<std::string> Synthesize(const SynthRequest& request);

}  // namespace signet
