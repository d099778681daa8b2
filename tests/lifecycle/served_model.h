#pragma once
// A tiny checkpoint served through the public API on a mesh, over watched
// devices: what the lifecycle tests drive.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lifecycle/ledger.h"
#include "signet/engine.h"
#include "signet/plan.h"
#include "signet/session.h"
#include "support/running_model.h"

namespace signet::testing {

/// Two layers, one of each mixer, eight experts; made once a process.
std::filesystem::path LifecycleCheckpoint();

Plan LifecyclePlan(const std::string& mesh);

/// `count` requests drawn at a temperature, so that small differences show.
std::vector<Request> LifecycleRequests(size_t count, int64_t max_tokens);

/// What one request was told.
struct Heard {
  std::vector<int32_t> ids;
  int ends = 0;
  Finish finish = Finish::kError;
};

class HearingSink : public Sink {
 public:
  explicit HearingSink(size_t requests) : heard(requests) {}
  void OnToken(const TokenEvent& event) override {
    heard[event.request].ids.push_back(event.id);
    if (on_token) on_token();
  }
  void OnEnd(const EndEvent& event) override {
    ++heard[event.request].ends;
    heard[event.request].finish = event.finish;
  }
  std::vector<Heard> heard;
  std::function<void()> on_token;
};

/// The ids of every request; each must end by itself, once.
std::vector<std::vector<int32_t>> Answer(Session& session,
                                         const std::vector<Request>& requests);

}  // namespace signet::testing
