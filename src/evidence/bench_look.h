#pragma once
// The second part of a bench: decodes and prefills run once more, looked at or
// timed launch by launch.

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "evidence/bench_profile.h"
#include "evidence/bench_run.h"
#include "evidence/bench_serve.h"

namespace signet::evidence {

/// The first steps of a decode.
struct DecodeLook {
  int64_t steps = 0;
  double experts = 0;  // distinct ones a layer and step; 0 in a dense model
  bool same_tokens = true;
};

/// Feeds what `sequences` drew when they were timed. `run` is tapped.
Result<DecodeLook> LookAtDecode(BenchRun& run,
                                const std::vector<Sequence>& sequences);
/// Distinct experts a layer meets in the first chunk of `prompt`; 0 in a dense
/// model. `run` is tapped.
Result<double> LookAtPrefill(BenchRun& run, const std::vector<int32_t>& prompt);

/// The same steps by launch, then as they are served unless `run` is tapped.
/// `experts`: that a layer meets, for the costs.
Result<Profile> ProfileDecode(BenchRun& run,
                              const std::vector<Sequence>& sequences,
                              double experts);
/// The same of the first chunks of `prompts`, of which the first warms up.
Result<Profile> ProfilePrefill(BenchRun& run,
                               const std::vector<std::vector<int32_t>>& prompts,
                               double experts);

}  // namespace signet::evidence
