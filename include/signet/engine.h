#pragma once
// Loaded models. Engine and Model are shared handles; their calls may come
// from any thread. No exceptions, no globals.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "signet/error.h"
#include "signet/plan.h"

namespace signet {

struct LoadProgress {
  uint64_t done_bytes;
  uint64_t total_bytes;
};

/// Sampling parameters. Temperature 0 is greedy.
struct Sampling {
  float temperature = 0.0f;
  int32_t top_k = 0;   // 0: no limit
  float top_p = 1.0f;  // 1: no limit
  uint64_t seed = 0;
};

/// One set of weights, published. The weights live until Unload, and until the
/// last session on them is gone.
class Model {
 public:
  /// Ids of `text`, no template applied, no token added. kRequestInvalid
  /// without a tokenizer or for text that is not UTF-8.
  Result<std::vector<int32_t>> Encode(std::string_view text) const;
  bool has_tokenizer() const;
  bool has_chat_template() const;
  /// generation_config.json where there is one, else greedy.
  Sampling default_sampling() const;
  /// Stop ids of config.json, generation_config.json and
  /// tokenizer_config.json together, ascending.
  std::vector<int32_t> stop_ids() const;
  std::string contract_id() const;
  /// Frees the weights. Idempotent. A Failure of kind kState while sessions
  /// are alive.
  Result<void> Unload();

  struct Impl;

 private:
  friend class Engine;
  friend class Session;
  explicit Model(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

struct EngineOptions {
  int threads = 0;  // 0: as many as the machine (and its cgroup) has
  /// Refuses a model with any weight that is not finite. Without it only the
  /// norms, routers and decays are looked at, which every token meets.
  bool verify_files = false;
};

class Engine {
 public:
  static Result<Engine> Make(const EngineOptions& options);

  /// Admits the plan's memory, then loads as one transaction: on any error
  /// nothing of it remains and models already loaded are untouched. Files that
  /// changed since Source::Open are a Failure. `progress` may be empty; it is
  /// called from this thread.
  Result<Model> Load(const Plan& plan,
                     const std::function<void(const LoadProgress&)>& progress);

  struct Impl;

 private:
  Result<Model> LoadHere(
      const Plan& plan,
      const std::function<void(const LoadProgress&)>& progress);
  explicit Engine(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace signet
