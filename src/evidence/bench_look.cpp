#include "evidence/bench_look.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "evidence/bench_spread.h"

namespace signet::evidence {
namespace {

constexpr int64_t kMostSteps = 8;

int64_t StepsOf(const std::vector<Sequence>& sequences) {
  const auto made = static_cast<int64_t>(sequences.front().drawn.size());
  return std::min(made - 1, kMostSteps);
}

Result<int32_t> PrefillAll(BenchRun& run, SequenceSlot slot,
                           std::span<const int32_t> prompt) {
  while (true) {
    SIGNET_ASSIGN_OR_RETURN(const BenchRun::Chunk chunk,
                            run.Prefill(slot, prompt));
    prompt = prompt.subspan(static_cast<size_t>(chunk.rows));
    if (prompt.empty()) return chunk.drawn;
  }
}

// These begin anew; whether all draw what they drew first.
Result<bool> Begin(BenchRun& run, const std::vector<Sequence>& sequences) {
  run.Clear();
  bool same = true;
  for (size_t i = 0; i < sequences.size(); ++i) {
    SIGNET_ASSIGN_OR_RETURN(
        const int32_t drawn,
        PrefillAll(run, SequenceSlot(static_cast<int32_t>(i)),
                   sequences[i].prompt));
    same &= drawn == sequences[i].drawn.front();
  }
  return same;
}

// Whether all draw what they drew in this step.
Result<bool> Decode(BenchRun& run, const std::vector<Sequence>& sequences,
                    int64_t step) {
  const auto at = static_cast<size_t>(step);
  std::vector<int32_t> ids;
  for (const Sequence& sequence : sequences) ids.push_back(sequence.drawn[at]);
  SIGNET_ASSIGN_OR_RETURN(const std::vector<int32_t> drawn, run.Decode(ids));
  bool same = true;
  for (size_t i = 0; i < sequences.size(); ++i) {
    same &= drawn[i] == sequences[i].drawn[at + 1];
  }
  return same;
}

// Makes calls, by launch or not, and says when one is done that counts.
using Calls = std::function<Result<void>(bool by_launch,
                                         const std::function<void()>& done)>;

Result<Profile> ProfileCalls(BenchRun& run, double experts,
                             const Calls& calls) {
  ProfileBuilder builder;
  SIGNET_RETURN_IF_ERROR(calls(true, [&] { builder.Add(run.last()); }));
  Profile profile = builder.Build(run.plan(), experts);
  profile.unfused = run.binding() == BenchBinding::kTapped;
  if (profile.unfused) return profile;
  std::vector<double> seconds;
  SIGNET_RETURN_IF_ERROR(
      calls(false, [&] { seconds.push_back(run.last().seconds); }));
  profile.served_seconds = SpreadOf(std::move(seconds)).median;
  return profile;
}

}  // namespace

Result<DecodeLook> LookAtDecode(BenchRun& run,
                                const std::vector<Sequence>& sequences) {
  DecodeLook look{.steps = StepsOf(sequences)};
  SIGNET_ASSIGN_OR_RETURN(look.same_tokens, Begin(run, sequences));
  RouteCounter routes(run.plan().config().num_experts);
  run.Watch(&routes);
  for (int64_t step = 0; step < look.steps; ++step) {
    SIGNET_ASSIGN_OR_RETURN(const bool same, Decode(run, sequences, step));
    look.same_tokens &= same;
  }
  run.Watch(nullptr);
  look.experts = routes.Mean();
  return look;
}

Result<double> LookAtPrefill(BenchRun& run,
                             const std::vector<int32_t>& prompt) {
  RouteCounter routes(run.plan().config().num_experts);
  run.Clear();
  run.Watch(&routes);
  SIGNET_RETURN_IF_ERROR(run.Prefill(SequenceSlot(0), prompt));
  run.Watch(nullptr);
  return routes.Mean();
}

Result<Profile> ProfileDecode(BenchRun& run,
                              const std::vector<Sequence>& sequences,
                              double experts) {
  const int64_t steps = StepsOf(sequences);
  return ProfileCalls(
      run, experts,
      [&](bool by_launch, const std::function<void()>& done) -> Result<void> {
        SIGNET_RETURN_IF_ERROR(Begin(run, sequences));
        run.set_by_launch(by_launch);
        for (int64_t step = 0; step < steps; ++step) {
          SIGNET_RETURN_IF_ERROR(Decode(run, sequences, step));
          // The first warms up, where there is another.
          if (step > 0 || steps == 1) done();
        }
        run.set_by_launch(false);
        return {};
      });
}

Result<Profile> ProfilePrefill(BenchRun& run,
                               const std::vector<std::vector<int32_t>>& prompts,
                               double experts) {
  return ProfileCalls(
      run, experts,
      [&](bool by_launch, const std::function<void()>& done) -> Result<void> {
        run.set_by_launch(by_launch);
        for (size_t i = 0; i < prompts.size(); ++i) {
          run.Clear();
          SIGNET_RETURN_IF_ERROR(run.Prefill(SequenceSlot(0), prompts[i]));
          if (i > 0) done();
        }
        run.set_by_launch(false);
        return {};
      });
}

}  // namespace signet::evidence
