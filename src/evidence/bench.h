#pragma once
// signet bench: how fast a model is loaded, reads prompts and decodes, beside
// what had to be moved and computed and what the device can do at best.
// Everything is measured through the public API but for what is looked into:
// the experts met, and the profile.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "evidence/bench_ceilings.h"
#include "evidence/bench_profile.h"
#include "evidence/bench_spread.h"
#include "evidence/bench_traffic.h"
#include "signet/plan.h"
#include "signet/source.h"
#include "topology/mesh.h"

namespace signet::evidence {

inline constexpr int64_t kDecodePromptIds = 32;
inline constexpr int kFewestRuns = 5;

struct BenchRequest {
  std::string model;
  SearchPaths paths;
  /// Its mesh, context, buckets and chunks are not read; `batch` is raised to
  /// the largest of `batches`.
  PlanOptions options;
  std::optional<int64_t> context;  // unset: as much as is measured
  std::vector<int64_t> prompts = {512, 2048};
  int64_t tokens = 128;  // of each request of a decode, at least 2
  std::vector<int64_t> batches = {1, 8, 64};
  int repeat = kFewestRuns;
  bool profile = false;
  int threads = 0;
  bool verify_files = false;  // every weight is proven finite
  /// Told what is measured next; may be empty.
  std::function<void(std::string_view)> on_phase;
  /// Told each figure when it is measured, before all are; may be empty.
  std::function<void(std::string_view)> on_figure;
};

struct PlanResult {
  double seconds = 0;  // plan, lower and seal, from an open checkpoint
  SealingFigures sealing;
};

struct LoadResult {
  uint64_t bytes = 0;
  double seconds = 0;
};

struct PrefillResult {
  int64_t tokens = 0;
  Spread seconds;  // to the first token
  Spread tokens_per_second;
  Costs costs;
};

/// Counted on the routes of the first steps of a decode, run once more.
struct RoutedExperts {
  int64_t steps = 0;
  double met = 0;      // distinct experts a layer and step
  double uniform = 0;  // the same, were all as likely
  /// Whether those steps drew what was drawn when they were timed.
  bool same_tokens = true;
};

struct DecodeResult {
  int64_t batch = 0;
  int64_t steps = 0;  // of a window
  Spread tokens_per_second;
  Spread step_seconds;
  double attended = 0;  // positions a row attends to, the mean of a window
  std::optional<RoutedExperts> experts;  // unset in a dense model
  Costs costs;                           // of a step

  /// Why the run says nothing; empty when it does.
  std::string VoidReason() const;
};

struct BenchReport {
  std::string model;  // as asked
  std::string folder;
  topology::DeviceIdentity device;
  std::string contract;
  int threads = 0;
  int64_t context = 0;
  int64_t batch = 0;
  int64_t layers = 0;
  int64_t num_experts = 0;  // of a layer
  int repeat = 0;
  Ceilings ceilings;
  PlanResult planning;
  LoadResult load;
  std::optional<uint64_t> peak_bytes;  // resident, from the load to the last
                                       // decode; unset: the system cannot say
  std::vector<PrefillResult> prefill;
  std::vector<DecodeResult> decode;
  std::vector<Profile> profiles;  // empty: not asked for
};

/// Refuses before anything is measured.
Result<BenchReport> Bench(const BenchRequest& request);

}  // namespace signet::evidence
