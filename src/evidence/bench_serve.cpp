#include "evidence/bench_serve.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "model/philox.h"

namespace signet::evidence {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kWarmUpTokens = 8;

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// When all requests had their first token, their second, ...
class StepSink final : public Sink {
 public:
  StepSink(size_t requests, int64_t tokens)
      : drawn_(requests), steps_(static_cast<size_t>(tokens)) {
    for (std::vector<int32_t>& ids : drawn_) {
      ids.reserve(static_cast<size_t>(tokens));
    }
  }

  void OnToken(const TokenEvent& event) override {
    std::vector<int32_t>& ids = drawn_[event.request];
    ids.push_back(event.id);
    Step& step = steps_[ids.size() - 1];
    if (++step.tokens == drawn_.size()) step.time = Clock::now();
  }
  void OnEnd(const EndEvent& event) override {
    if (event.error && !error_) error_ = event.error;
  }

  const std::optional<Error>& error() const { return error_; }
  Clock::time_point first() const { return steps_.front().time; }
  Clock::time_point last() const { return steps_.back().time; }
  std::vector<std::vector<int32_t>> TakeDrawn() { return std::move(drawn_); }

 private:
  struct Step {
    size_t tokens = 0;
    Clock::time_point time;
  };
  std::vector<std::vector<int32_t>> drawn_;  // [request]
  std::vector<Step> steps_;
  std::optional<Error> error_;
};

std::vector<Request> MakeRequests(RandomPrompts& prompts, int64_t count,
                                  int64_t length, int64_t tokens) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < count; ++i) {
    requests.push_back({.prompt = prompts.Next(length),
                        .max_tokens = tokens,
                        .ignore_eos = true,
                        .sequence = static_cast<uint32_t>(i)});
  }
  return requests;
}

Result<void> Generate(Session& session, const std::vector<Request>& requests,
                      StepSink& sink) {
  SIGNET_RETURN_IF_ERROR(session.Generate(requests, sink));
  if (sink.error()) return tl::unexpected<Error>(*sink.error());
  return {};
}

}  // namespace

std::vector<int32_t> RandomPrompts::Next(int64_t length) {
  const uint32_t prompt = made_++;
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i) {
    const model::PhiloxBlock block =
        model::Philox({static_cast<uint32_t>(i), prompt, 0, 0}, {0, 0});
    ids.push_back(
        static_cast<int32_t>(block[0] % static_cast<uint32_t>(vocab_)));
  }
  return ids;
}

Result<std::vector<double>> MeasurePrefill(Session& session,
                                           RandomPrompts& prompts,
                                           int64_t length, int repeat) {
  std::vector<double> seconds;
  for (int run = 0; run <= repeat; ++run) {
    const std::vector<Request> requests = MakeRequests(prompts, 1, length, 1);
    StepSink sink(1, 1);
    const Clock::time_point start = Clock::now();
    SIGNET_RETURN_IF_ERROR(Generate(session, requests, sink));
    if (run > 0) seconds.push_back(Seconds(sink.first() - start));
  }
  return seconds;
}

Result<DecodeRuns> MeasureDecode(Session& session, RandomPrompts& prompts,
                                 int64_t batch, int64_t prompt_length,
                                 int64_t tokens, int repeat) {
  DecodeRuns runs{
      .batch = batch, .steps = tokens - 1, .windows = {}, .last = {}};
  for (int run = 0; run <= repeat; ++run) {
    const int64_t made = run == 0 ? std::min(tokens, kWarmUpTokens) : tokens;
    std::vector<Request> requests =
        MakeRequests(prompts, batch, prompt_length, made);
    StepSink sink(requests.size(), made);
    SIGNET_RETURN_IF_ERROR(Generate(session, requests, sink));
    if (run > 0) runs.windows.push_back(Seconds(sink.last() - sink.first()));
    if (run < repeat) continue;
    std::vector<std::vector<int32_t>> drawn = sink.TakeDrawn();
    for (size_t i = 0; i < requests.size(); ++i) {
      runs.last.push_back(
          {std::get<std::vector<int32_t>>(std::move(requests[i].prompt)),
           std::move(drawn[i])});
    }
  }
  return runs;
}

}  // namespace signet::evidence
