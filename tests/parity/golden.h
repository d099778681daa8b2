#pragma once
// A golden: what transformers computed in fp32 for one checkpoint
// (tools/oracle/README.md), and how far that is from fp64.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "parity/trace.h"

namespace signet::testing {

struct Golden {
  std::vector<int32_t> prompt;
  std::vector<int32_t> tokens;  // greedy
  /// `logits` and `residual.L` hold the rows of these positions only.
  std::vector<int32_t> logit_positions;
  std::vector<int32_t> residual_positions;
  Trace trace;
  /// By layer and position, fp64: the least score gap that keeps the set of
  /// experts, and their order.
  std::vector<std::vector<double>> set_margins;
  std::vector<std::vector<double>> order_margins;
  std::map<std::string, std::string> metadata;

  /// The tokens that were fed: all but the last.
  std::vector<int32_t> fed() const;
  /// prompt, then fed().
  std::vector<int32_t> all_fed() const;
  /// transformers' own error against fp64 in the measure of ErrorOf.
  double ErrorOfTransformers(const std::string& name) const;
};

/// Where the golden of a checkpoint lies.
std::filesystem::path GoldenPath(const std::string& name);

/// Ends the program when the file is not a golden.
Golden ReadGolden(const std::filesystem::path& path);

/// Empty, or a sentence that says in what `folder` is not the checkpoint the
/// golden was made from.
std::string Staleness(const Golden& golden,
                      const std::filesystem::path& folder);

}  // namespace signet::testing
