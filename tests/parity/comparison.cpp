#include "parity/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>

namespace signet::testing {
namespace {

// The rows of the engine's tensor that the golden keeps.
OracleTensor AsStored(const std::string& name, const OracleTensor& tensor,
                      const Golden& golden) {
  const std::string_view kind = KindOf(name);
  if (kind == "logits") return SelectRows(tensor, golden.logit_positions);
  if (kind == "residual") return SelectRows(tensor, golden.residual_positions);
  return tensor;
}

/// What the rule of Judge allows for one tensor.
struct Allowance {
  double bound;
  bool against_fp64;
};

Allowance AllowanceOf(const std::string& name, const Golden& golden) {
  const double bound = BoundOf(KindOf(name));
  const double transformers = golden.ErrorOfTransformers(name);
  if (transformers <= bound / 2) return {bound, false};
  return {2 * transformers, true};
}

bool HasSameSet(std::vector<int32_t> a, std::vector<int32_t> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b;
}

}  // namespace

double BoundOf(std::string_view kind) {
  static const std::map<std::string_view, double> bounds = {
      {"logits", 2e-3}, {"residual", 1e-5}, {"recurrent", 1e-4},
      {"conv", 1e-4},   {"k", 1e-4},        {"v", 1e-4},
  };
  const auto found = bounds.find(kind);
  if (found == bounds.end()) {
    std::fprintf(stderr, "no bound for %s\n", std::string(kind).c_str());
    std::abort();
  }
  return found->second;
}

std::map<std::string, Verdict> Judge(const Trace& engine, const Golden& golden,
                                     const Trace& fp64) {
  std::map<std::string, Verdict> verdicts;
  for (const auto& [name, stored] : golden.trace.tensors) {
    const std::string kind(KindOf(name));
    const OracleTensor& got = engine.tensors.at(name);
    const double of_fp64 = ErrorOf(name, got, fp64.tensors.at(name));
    const auto [bound, against_fp64] = AllowanceOf(name, golden);
    const Verdict verdict = {
        .worst_tensor = name,
        .measured = against_fp64
                        ? of_fp64
                        : ErrorOf(name, AsStored(name, got, golden), stored),
        .bound = bound,
        .against_fp64 = against_fp64,
        .transformers = golden.ErrorOfTransformers(name)};
    const auto [found, is_first] = verdicts.try_emplace(kind, verdict);
    Verdict& worst = found->second;
    const double worst_fp64 = std::max(worst.fp64, of_fp64);
    if (!is_first &&
        verdict.measured / verdict.bound > worst.measured / worst.bound) {
      worst = verdict;
    }
    worst.fp64 = worst_fp64;
  }
  return verdicts;
}

std::vector<RouteDifference> RouteDifferences(const Trace& engine,
                                              const Golden& golden) {
  std::vector<RouteDifference> differences;
  const Routes& want = golden.trace.routes;
  if (engine.routes.size() != want.size()) {
    return {{engine.routes.size(), 0, std::numeric_limits<double>::infinity()}};
  }
  for (size_t layer = 0; layer < want.size(); ++layer) {
    for (size_t p = 0; p < want[layer].size(); ++p) {
      const auto& got = engine.routes[layer].at(p);
      if (got == want[layer][p]) continue;
      const auto& margins = HasSameSet(got, want[layer][p])
                                ? golden.order_margins
                                : golden.set_margins;
      differences.push_back({layer, p, margins[layer][p]});
    }
  }
  return differences;
}

Discrepancy WorstDiscrepancy(const Trace& engine, const Trace& fp64,
                             const Golden& golden) {
  Discrepancy worst;
  const auto note = [&](double factor, const std::string& where) {
    if (factor > worst.factor) worst = {factor, where};
  };
  for (const auto& [name, tensor] : fp64.tensors) {
    note(ErrorOf(name, engine.tensors.at(name), tensor) /
             AllowanceOf(name, golden).bound,
         name);
  }
  for (size_t layer = 0; layer < fp64.routes.size(); ++layer) {
    if (engine.routes.at(layer) == fp64.routes[layer]) continue;
    note(std::numeric_limits<double>::infinity(),
         fmt::format("router_ids.{}", layer));
  }
  return worst;
}

}  // namespace signet::testing
