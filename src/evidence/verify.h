#pragma once
// signet verify: sides of one model compared position by position with the
// first (contract E1), and what is found.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/digest.h"
#include "base/result.h"
#include "evidence/comparison.h"
#include "evidence/fault.h"
#include "evidence/side_log.h"
#include "evidence/side_plan.h"
#include "signet/plan.h"
#include "signet/source.h"
#include "topology/mesh.h"

namespace signet::evidence {

/// What is fed where no prompt is given.
extern const std::string_view kDefaultPrompt;
inline constexpr int64_t kDefaultPositions = 64;

struct VerifyRequest {
  std::string model;
  SearchPaths paths;
  PlanOptions options;  // its mesh is not read; all_logits neither
  std::vector<SideRequest> sides;
  /// Unset: kDefaultPrompt, or fixed ids without a tokenizer.
  std::optional<std::variant<std::vector<int32_t>, std::string>> prompt;
  int64_t positions = kDefaultPositions;  // the prompt's included
  int threads = 0;
  bool verify_files = false;   // every weight is proven finite and digested
  std::optional<Fault> fault;  // acts on every side but the first
};

/// What the model is, wherever its files lie.
struct ModelDigests {
  Digest headers;    // config.json and every header
  Digest tokenizer;  // tokenizer.json; of nothing without one
};
Result<ModelDigests> DigestsOf(const model::Checkpoint& checkpoint);

struct SideReport {
  SideRequest request;
  std::vector<topology::DeviceIdentity> devices;
  bool emulated = false;
  uint64_t epoch = 0;
  Digest contract;  // of the production programs
  std::optional<Bounds> bounds;
  // With the first side; unset for the first itself.
  std::optional<Comparison> production;
  std::optional<Comparison> tapped;
  std::vector<SelfFault> faults;
  int64_t num_faults = 0;
  int64_t collectives_a_call = 0;
  std::vector<int64_t> rank_slots;
  std::vector<Digest> digests;  // [position]

  bool holds() const;
  /// The first place whose bits differ from the first side's.
  std::optional<Place> different() const;
};

struct VerifyReport {
  std::string model;  // as asked
  std::string folder;
  ModelDigests digests;
  std::optional<Digest> content;  // of the weights, where the load made it
  std::optional<std::string> prompt_text;
  std::vector<int32_t> prompt;
  std::vector<int32_t> drawn;  // by the first side, the last one included
  int64_t positions = 0;
  std::optional<Fault> fault;
  PlanOptions options;
  std::vector<SideReport> sides;

  bool holds() const;
};

/// Plans and seals every side before anything is loaded; fails with every
/// refusal found. A difference is no failure: it is in the report.
Result<VerifyReport> Verify(const VerifyRequest& request);

}  // namespace signet::evidence
