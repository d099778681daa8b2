#pragma once
// The demo model loaded through the public API, and a sink that keeps what it
// is told.

#include <functional>
#include <string>
#include <vector>

#include "signet/engine.h"
#include "signet/plan.h"
#include "signet/session.h"
#include "signet/source.h"
#include "support/running_model.h"

namespace signet::testing {

inline std::string DemoFolder() {
  return std::string(SIGNET_SOURCE_DIR) + "/models/demo";
}

inline Plan DemoPlan(const PlanOptions& options) {
  return ValueOrDie(
      Plan::Make(ValueOrDie(Source::Open(DemoFolder(), {})), options));
}

inline Model LoadDemo(const PlanOptions& options, int threads = 2) {
  Engine engine = ValueOrDie(Engine::Make({.threads = threads}));
  return ValueOrDie(engine.Load(DemoPlan(options), {}));
}

/// What one request was told.
struct Told {
  std::vector<int32_t> ids;
  std::string text;
  int ends = 0;
  Finish finish = Finish::kError;
  bool context_full = false;
  int64_t tokens = 0;
  bool has_error = false;
};

class KeepingSink : public Sink {
 public:
  explicit KeepingSink(size_t requests) : told(requests) {}
  void OnToken(const TokenEvent& event) override {
    Told& one = told[event.request];
    one.ids.push_back(event.id);
    one.text += event.text;
    if (on_token) on_token(event);
  }
  void OnEnd(const EndEvent& event) override {
    Told& one = told[event.request];
    ++one.ends;
    one.finish = event.finish;
    one.text += event.text;
    one.context_full = event.context_full;
    one.tokens = event.tokens;
    one.has_error = event.error.has_value();
  }
  std::vector<Told> told;
  std::function<void(const TokenEvent&)> on_token;
};

inline std::vector<Told> GenerateAll(Session& session,
                                     const std::vector<Request>& requests) {
  KeepingSink sink(requests.size());
  ValueOrDie(session.Generate(requests, sink));
  return sink.told;
}

inline Request Ask(std::string prompt, int64_t max_tokens) {
  return {.prompt = std::move(prompt), .max_tokens = max_tokens};
}

template <typename T>
bool Refuses(const Result<T>& result, RejectionCode code) {
  if (result.has_value()) return false;
  const auto* rejections = std::get_if<Rejections>(&result.error());
  return rejections != nullptr && rejections->Has(code);
}

template <typename T>
bool Fails(const Result<T>& result, FailureKind kind) {
  if (result.has_value()) return false;
  const auto* failure = std::get_if<Failure>(&result.error());
  return failure != nullptr && failure->kind == kind;
}

}  // namespace signet::testing
