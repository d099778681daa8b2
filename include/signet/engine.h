#pragma once
// Loaded models. Engine and Model are shared handles; their calls may come
// from any thread. No exceptions, no globals: any call that returns a Result
// may end in a Failure of kind kMemory.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "signet/chat.h"
#include "signet/error.h"
#include "signet/plan.h"

namespace signet {

/// Bytes of weights.
struct LoadProgress {
  uint64_t done_bytes;
  uint64_t total_bytes;
};

/// Sampling parameters. Temperature 0 is greedy: the likeliest token.
struct Sampling {
  float temperature = 0.0f;  // at least 0
  int32_t top_k = 0;         // 0: no limit
  float top_p = 1.0f;        // over 0; 1: no limit
  uint64_t seed = 0;
};

/// One set of weights, published. The weights live until Unload, and until the
/// last session on them is gone.
class Model {
 public:
  /// Ids of `text`, no template applied, no token added. kRequestInvalid
  /// without a tokenizer or for text that is not UTF-8.
  Result<std::vector<int32_t>> Encode(std::string_view text) const;
  /// Ids of the rendered conversation, up to where the answer begins. Refused
  /// as Source::CheckChat does; kRequestInvalid for a conversation that the
  /// template refuses, or text that is not UTF-8.
  Result<std::vector<int32_t>> EncodeChat(const Chat& chat) const;
  bool has_tokenizer() const;
  bool has_chat_template() const;
  /// generation_config.json where there is one, else greedy.
  Sampling default_sampling() const;
  /// Stop ids of config.json, generation_config.json and
  /// tokenizer_config.json together, and the end of a turn of a chat template
  /// that is rendered; ascending.
  const std::vector<int32_t>& stop_ids() const;
  /// Of the plan that was loaded.
  const std::string& contract_id() const;
  /// Of what the weights are: 32 hexadecimal digits, the same on every mesh.
  /// Always set on a GPU, on a CPU with EngineOptions::verify_files; unset
  /// where another process holds some of them.
  const std::optional<std::string>& content_digest() const;
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
  /// Threads of a session, shared by the ranks that run here; 0: as many as
  /// this process may use, by its affinity and its cgroup.
  int threads = 0;
  /// Refuses a model with any weight that is not finite, and digests all of
  /// them on a CPU too. Without it only the norms, routers and decays are
  /// looked at, which every token meets.
  bool verify_files = false;
};

class Engine {
 public:
  /// kPlanOptionInvalid for a number of threads that is out of range.
  static Result<Engine> Make(const EngineOptions& options);

  /// Admits the plan's memory, then loads as one transaction: on any error
  /// nothing of it remains and models already loaded are untouched. Files that
  /// changed since Source::Open are a Failure. Blocks until the weights are
  /// in place. `progress` may be empty; it is called from this thread. Refuses
  /// with kMemoryShort; fails with kIo, kChangedFile, kMemory, kDevice.
  Result<Model> Load(const Plan& plan,
                     const std::function<void(const LoadProgress&)>& progress);

  struct Impl;

 private:
  Result<Model> LoadTogether(
      const Plan& plan,
      const std::function<void(const LoadProgress&)>& progress);
  Result<Model> LoadHere(
      const Plan& plan,
      const std::function<void(const LoadProgress&)>& progress);
  explicit Engine(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace signet
