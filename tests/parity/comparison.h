#pragma once
// The acceptance of a trace of the engine: against a golden, with the bounds
// that every checkpoint has to meet.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "parity/golden.h"
#include "parity/trace.h"

namespace signet::testing {

/// What the measure of ErrorOf may give: max |logit difference| 2e-3, relative
/// residual 1e-5, states 1e-4.
double BoundOf(std::string_view kind);

/// The worst of the tensors of one kind, by measured / bound.
struct Verdict {
  std::string worst_tensor;
  double measured = 0;
  double bound = 0;
  bool against_fp64 = false;
  double transformers = 0;  // transformers' fp32 against fp64
  double fp64 = 0;          // the engine against fp64, the worst of the kind
  bool ok() const { return measured <= bound; }
};

/// Of every tensor: the engine is compared with transformers within the bound.
/// Where transformers' own fp32 error is over half the bound, that would judge
/// transformers; the engine is then compared with fp64, and may be twice as
/// far from it as transformers is.
std::map<std::string, Verdict> Judge(const Trace& engine, const Golden& golden,
                                     const Trace& fp64);

/// Routes that differ, each with the margin that could excuse it: of the set
/// where another set was chosen, of the order where only that differs.
struct RouteDifference {
  size_t layer;
  size_t position;
  double margin;
};
std::vector<RouteDifference> RouteDifferences(const Trace& engine,
                                              const Golden& golden);

/// A near tie in fp64, that rounding may decide.
inline constexpr double kExcusedMargin = 1e-6;

/// The greatest measure of a tensor of `fp64`, over what the rule of Judge
/// allows; infinite where a route differs. Over 1 the traces are told apart.
struct Discrepancy {
  double factor = 0;
  std::string where;  // a tensor, or `router_ids.L`
};
Discrepancy WorstDiscrepancy(const Trace& engine, const Trace& fp64,
                             const Golden& golden);

}  // namespace signet::testing
