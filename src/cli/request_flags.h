#pragma once
// The flags of `run` that say how a request is generated.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "signet/engine.h"
#include "signet/session.h"

namespace signet::cli {

class RequestFlags {
 public:
  /// -n --ignore-eos --stop --temp --top-p --top-k --seed.
  void Add(CLI::App& app);

  /// A request without a prompt. Sampling is the model's own, but for the parts
  /// that were given; `max_tokens` holds without -n.
  Request Make(const Model& model, int64_t max_tokens) const;
  bool has_stops() const { return !stops_.empty(); }

 private:
  std::optional<int64_t> max_tokens_;
  bool ignore_eos_ = false;
  std::vector<std::string> stops_;
  std::optional<float> temperature_;
  std::optional<float> top_p_;
  std::optional<int32_t> top_k_;
  std::optional<uint64_t> seed_;
};

}  // namespace signet::cli
